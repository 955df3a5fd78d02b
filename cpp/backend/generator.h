#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/device.h"
#include "runtime/capture.h"
#include "runtime/graph_exec.h"

namespace openreg::backend {

struct PhiloxSource;

/// The state of Philox 4x32-10, which determines the numbers of a random kernel.
struct PhiloxState {
  std::uint64_t seed;
  std::uint64_t offset;
};

/// The state that a command carries, as its kernel needs it. A captured command carries the address
/// of its graph's cell (CapturedGenerator) and the distance of its numbers from the cell's offset.
/// For code that may read device memory.
PhiloxState philox_of_command(PhiloxState carried) noexcept;

/// A generator's part in a graph: each run of the graph takes new numbers for the captured
/// commands, from the generator's offset at that time. The commands read the state from a cell of
/// device memory.
class CapturedGenerator {
 public:
  /// Throws c10::Error if the generator has another device type.
  explicit CapturedGenerator(const at::Generator& generator);
  CapturedGenerator(std::shared_ptr<PhiloxSource> source, c10::DeviceIndex device);
  ~CapturedGenerator();
  CapturedGenerator(const CapturedGenerator&) = delete;
  CapturedGenerator& operator=(const CapturedGenerator&) = delete;

  /// Whether both have the same state: generators may share one.
  bool is_same(const CapturedGenerator& other) const noexcept { return source_ == other.source_; }

  /// Until end_capture(), commands of this capture may draw from the generator.
  void begin_capture(CaptureId capture);
  /// Does nothing if no capture has begun.
  void end_capture() noexcept;

  /// Whether the captured commands take no numbers.
  bool is_unused() const noexcept { return !drawn_; }
  /// Takes the numbers of one run. Returns what the run must write first.
  ReplayParameter take();

 private:
  const std::shared_ptr<PhiloxSource> source_;
  void* const cell_;
  CaptureId capture_ = 0;
  std::uint64_t taken_ = 0;  // by all captured commands together, at the end of the capture
  bool drawn_ = false;       // taken_ may still be 0: setting a state can take it back
};

/// Takes `increment` numbers (rounded up to a multiple of 4, as CUDA does) from `generator`, or
/// from the device's default one, at launch, under its lock. Throws c10::Error if the generator
/// belongs to another device. If the current stream is captured, registers the generator with the
/// graph.
PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t increment);

/// The device's default generator (-1: of the current device), which lives as long as the process;
/// it gets a random seed at first use. Thread safe. Throws as resolve_device() does.
const at::Generator& default_generator(c10::DeviceIndex device = -1);
/// A generator with PyTorch's default seed. Throws as resolve_device() does.
at::Generator new_generator(c10::DeviceIndex device = -1);

}  // namespace openreg::backend
