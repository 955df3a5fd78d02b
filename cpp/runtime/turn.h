#pragma once

#include <cstdint>

#include "runtime/callbacks.h"
#include "runtime/strand.h"

namespace openreg {

/// Whether the calling thread counts among those whose command process exit waits for; as before at
/// the end of the scope.
class RunningMark {
 public:
  explicit RunningMark(bool running) noexcept;
  ~RunningMark();
  RunningMark(const RunningMark&) = delete;
  RunningMark& operator=(const RunningMark&) = delete;

 private:
  const bool before_;
};

/// Where a thread of a device that has been shut down stays: the process takes itself apart.
[[noreturn]] void stand_still() noexcept;

/// A stretch of running a stream's commands, on the thread that owns the stream: under the clean
/// state of Callbacks, known to that thread as its innermost frame.
class Turn {
 public:
  enum class Runner : bool { kHost, kEngine };

  Turn(Strand& strand, Runner runner, Callbacks::SinceLastWait before = {});
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// A command is there.
  bool has_work() noexcept;
  /// Whether the next command is for engines of this kind; has_work() was true.
  bool is_for(EngineKind kind) noexcept;
  /// Runs the next command; has_work() was true. False: the stream is parked and no longer the
  /// caller's.
  bool step();
  /// Makes the commands run so far count.
  void flush_counters() noexcept;

 private:
  friend bool runs_here(const Strand& strand) noexcept;
  friend bool runs_device_here(int device) noexcept;
  friend bool in_command() noexcept;

  void enter();
  void run(const Record& record, Fence* fence);
  bool run_part(const Record& record);
  template <class F>
  void compute(const Kernel& kernel, Work work, F&& f);

  Strand& strand_;
  const Runner runner_;
  const Callbacks::SinceLastWait before_;
  const RunningMark running_{true};
  const Callbacks callbacks_;
  bool entered_ = false;
  void* clean_state_ = nullptr;
  Turn* const outer_;  // of the same thread
  std::uint64_t commands_ = 0;

  static constinit thread_local Turn* innermost_;
};

/// The calling thread is inside a command of this stream, or of a stream of this device.
bool runs_here(const Strand& strand) noexcept;
bool runs_device_here(int device) noexcept;
[[noreturn]] void throw_self_wait();

}  // namespace openreg
