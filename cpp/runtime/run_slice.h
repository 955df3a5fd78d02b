#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "address_space/device_work.h"
#include "runtime/callbacks.h"
#include "runtime/command.h"
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
  /// Runs the next command, or one node of a graph, or what a RemoteRunner runs at once; has_work()
  /// was true. False: the stream is no longer the caller's. It is parked, or the RemoteRunner has
  /// handed it over.
  bool step();
  /// Adds the commands run so far to the counters.
  void flush_counters() noexcept;

  // --- For a RemoteRunner, which runs the next commands for step() ---

  StreamImpl& stream() noexcept { return stream_; }
  bool by_engine() const noexcept { return runner_ == Runner::kEngine; }
  /// Called before commands run that are more than records and waits.
  void enter();
  /// The next command, or a node of it, has thrown.
  void fail(const Record& record, const Command& command, std::exception_ptr error);
  /// Removes the next command, which has ended.
  void pop(const Record& record);
  void count(std::uint64_t commands) noexcept { commands_ += commands; }

 private:
  friend bool runs_here(const StreamImpl& stream) noexcept;
  friend bool runs_device_here(int device) noexcept;
  friend bool in_command() noexcept;
  friend void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes);

  bool begin(const Record& record);
  bool skip(const Record& record);
  template <class F>
  bool run(const Record& record, const Command& command, Cost cost, F&& kernel,
           std::int64_t node = DeviceWork::kNone);
  bool run_node(const Record& record);

  StreamImpl& stream_;
  const Runner runner_;
  const Callbacks::SinceLastWait before_;
  const RunningScope running_{true};
  const Callbacks& callbacks_;
  bool entered_ = false;
  void* clean_state_ = nullptr;
  RunSlice* const outer_;  // of the same thread
  std::uint64_t commands_ = 0;
  LaunchSite site_ = 0;  // of the command that runs

  static constinit thread_local RunSlice* innermost_;
};

/// Whether the calling thread is inside a run slice of this stream, or of any stream of this
/// device.
bool runs_here(const StreamImpl& stream) noexcept;
bool runs_device_here(int device) noexcept;
/// Whether the calling thread runs commands: it is inside a run slice.
bool in_command() noexcept;
[[noreturn]] void throw_self_wait();

/// Runs a command inside another one, on the calling thread: by the device's RemoteRunner if it
/// belongs there, whose process it may end.
void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes = false);

}  // namespace openreg
