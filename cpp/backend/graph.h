#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/generator.h"
#include "runtime/capture.h"
#include "runtime/graph_exec.h"

namespace openreg::backend {

/// What torch.accelerator.Graph and torch.openreg.CUDAGraph are made of: a capture, what came of
/// it, and the memory and the random numbers that it has. Like CUDA's graphs it is not thread safe,
/// but for its destructor.
class CapturableGraph final : public at::GraphImplInterface {
 public:
  explicit CapturableGraph(const at::GraphImplArgs& args = {});
  ~CapturableGraph() override;

  /// Captures the current stream, which is not the default one, from now on. Memory that captured
  /// work asks for comes from `pool`, {0, 0}: from one of its own. The default mode is kGlobal.
  void capture_begin(c10::MempoolId_t pool = {0, 0},
                     at::GraphCaptureMode capture_mode = at::GraphCaptureMode::Default) override;
  void capture_end() override;
  void instantiate() override;
  /// Queues a run on the current stream.
  void replay() override;
  /// What is queued still runs.
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debugs_ = true; }
  /// Writes the graph in DOT. Warns, and writes nothing, without enable_debug_mode().
  void debug_dump(const std::string& path) override;

  /// Captured work may draw from `generator`; the device's default one needs no word. To be called
  /// before the capture.
  void register_generator_state(const at::Generator& generator);

 private:
  enum class State : std::uint8_t { kEmpty, kCapturing, kCaptured };
  class PoolUse;

  void drop_capture();
  void forget() noexcept;
  void expect_captured(const char* what) const;

  const bool keeps_graph_;
  bool debugs_ = false;
  State state_ = State::kEmpty;
  CaptureId capture_ = 0;
  openreg::Stream* stream_ = nullptr;  // that is, or was, captured
  std::unique_ptr<PoolUse> pool_;
  std::vector<std::shared_ptr<CapturedGenerator>> generators_;
  openreg::Graph graph_;  // until it is instantiated, or after that if it is kept
  std::shared_ptr<GraphExec> exec_;
};

}  // namespace openreg::backend
