#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/generator.h"
#include "base/mutex.h"
#include "runtime/capture.h"
#include "runtime/graph_exec.h"

namespace openreg::backend {

/// The implementation of torch.accelerator.Graph and torch.openreg.CUDAGraph: a capture, the
/// resulting graph, and its memory and random numbers. Like CUDA's graphs it is not thread safe,
/// except for replay() and its destructor. Its methods throw c10::Error if they are called in the
/// wrong order, and c10::AcceleratorError for what a capture does not permit.
class CapturableGraph final : public at::GraphImplInterface {
 public:
  explicit CapturableGraph(const at::GraphImplArgs& args = {});
  /// Ends a capture that is under way, unless only another thread can end it.
  ~CapturableGraph() override;

  /// Captures the current stream, which must not be the default one, from now on. Captured work
  /// gets its memory from `pool`; {0, 0} means a new pool for this graph. The default mode is
  /// kGlobal.
  void capture_begin(c10::MempoolId_t pool = {0, 0},
                     at::GraphCaptureMode capture_mode = at::GraphCaptureMode::Default) override;
  void capture_end() override;
  void instantiate() override;
  /// Queues a run on the current stream.
  void replay() override;
  /// Ends a capture that is under way. Queued runs still run.
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debugs_ = true; }
  /// Writes the graph in DOT. Warns, and writes nothing, without enable_debug_mode().
  void debug_dump(const std::string& path) override;

  /// Gives each run numbers of its own from `generator`. Drawing from a generator during the
  /// capture has the same effect. Throws c10::Error once the capture has begun.
  void register_generator_state(const at::Generator& generator);
  /// Like register_generator_state(), during the capture and on any thread. Does nothing if the
  /// capture has ended.
  static void register_in_capture(CaptureId capture,
                                  const std::shared_ptr<CapturedGenerator>& generator);

 private:
  enum class State : std::uint8_t { kEmpty, kCapturing, kCaptured };
  class PoolUse;

  struct ActiveCaptures;

  void drop_capture();
  /// Returns whether its state was new to the graph.
  bool add_generator(const std::shared_ptr<CapturedGenerator>& generator);
  void leave() noexcept;
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
  openreg::Mutex replays_;  // held from the look at the last run until the next one is queued
};

}  // namespace openreg::backend
