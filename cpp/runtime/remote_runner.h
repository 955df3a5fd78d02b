#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "runtime/command.h"

namespace openreg {

class RunSlice;

/// Runs a device's kernels outside the program (Executor, which starts a process). Streams, events
/// and graphs stay in the program. Thread safe.
class RemoteRunner {
 public:
  /// Returns the runner of a device, which must exist.
  using Find = RemoteRunner& (*)(int device);
  enum class Result : std::uint8_t {
    kNothing,     ///< the next command runs in the program
    kHasRun,      ///< the next commands have run, or failed
    kHandedOver,  ///< another thread has taken the stream over
  };

  /// Null: the device's kernels run in the program.
  static RemoteRunner* of(int device) {
    const Find find = find_.load(std::memory_order_relaxed);
    return find ? &find(device) : nullptr;
  }
  /// Kernels run where `find` says from now on.
  static void begin_use(Find find) noexcept;

  virtual ~RemoteRunner() = default;

  /// Runs the next commands of a slice that has work, if they belong elsewhere.
  virtual Result run_next(RunSlice& slice) = 0;
  /// Runs a command inside another one, whose thread calls. Throws what the command throws. False:
  /// the command belongs in the program, and has not run.
  virtual bool run(const Command& command) = 0;
  /// The graph has been destroyed.
  virtual void forget_graph(std::uint64_t graph) noexcept = 0;

  /// The number of the process that runs the kernels, if there is one.
  virtual std::optional<pid_t> process() const = 0;
  /// Ends the process; commands that it runs fail. Returns whether there was one, perhaps one that
  /// had ended by itself.
  virtual bool end() = 0;
  /// Starts the process if it does not run. Throws Error if it cannot be started.
  virtual void start() = 0;

 private:
  static constinit std::atomic<Find> find_;
};

}  // namespace openreg
