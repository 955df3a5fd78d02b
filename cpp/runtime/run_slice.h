#pragma once

#include <cstdint>

#include "runtime/callbacks.h"
#include "runtime/stream_impl.h"

namespace openreg {

/// Sets whether process exit waits for the calling thread's command; restores the previous value at
/// the end of the scope.
class RunningScope {
 public:
  explicit RunningScope(bool running) noexcept;
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const bool before_;
};

/// Blocks for ever: for threads that need a device that has been shut down while the process ends.
[[noreturn]] void block_forever() noexcept;

/// A period in which the thread that owns a stream runs its commands, under the clean state of
/// Callbacks. Run slices can nest on a thread, which knows its innermost one.
class RunSlice {
 public:
  enum class Runner : bool { kHost, kEngine };

  RunSlice(StreamImpl& stream, Runner runner, Callbacks::SinceLastWait before = {});
  ~RunSlice();
  RunSlice(const RunSlice&) = delete;
  RunSlice& operator=(const RunSlice&) = delete;

  /// Whether there is a command.
  bool has_work() noexcept { return stream_.queue.has_work(); }
  /// Whether the next command is for engines of this kind; has_work() was true.
  bool is_for(EngineKind kind) noexcept;
  /// Runs the next command, or one node of a graph; has_work() was true. False: the stream is
  /// parked and no longer the caller's.
  bool step();
  /// Adds the commands run so far to the counters.
  void flush_counters() noexcept;

 private:
  friend bool runs_here(const StreamImpl& stream) noexcept;
  friend bool runs_device_here(int device) noexcept;
  friend bool in_command() noexcept;

  void enter();
  void run(const Record& record, Fence* fence);
  bool run_part(const Record& record);
  template <class F>
  void compute(const Kernel& kernel, Cost cost, F&& f);

  StreamImpl& stream_;
  const Runner runner_;
  const Callbacks::SinceLastWait before_;
  const RunningScope running_{true};
  const Callbacks& callbacks_;
  bool entered_ = false;
  void* clean_state_ = nullptr;
  RunSlice* const outer_;  // of the same thread
  std::uint64_t commands_ = 0;

  static constinit thread_local RunSlice* innermost_;
};

/// Whether the calling thread is inside a run slice of this stream, or of any stream of this
/// device.
bool runs_here(const StreamImpl& stream) noexcept;
bool runs_device_here(int device) noexcept;
[[noreturn]] void throw_self_wait();

}  // namespace openreg
