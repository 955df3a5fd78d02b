#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/command.h"

namespace openreg {

class RemoteRunner;

/// Functions that the layers above provide to the runtime. Each layer installs its own before first
/// use; each may be null.
struct Callbacks {
  /// What a waiting host has done since its last wait, if known: how long it was away, how long one
  /// thread is expected to take for the commands enqueued on the stream in that time, and how long
  /// that last wait took.
  struct SinceLastWait {
    /// Totals over all waits of the host but the first: their number, the time in and before them,
    /// the expected time of the commands.
    struct Waits {
      std::uint64_t count{};
      std::chrono::nanoseconds time{};
      std::chrono::nanoseconds launched{};
    };
    std::chrono::nanoseconds away{};
    std::chrono::nanoseconds launched{};
    std::chrono::nanoseconds last_wait{};
    Waits waits;
  };
  /// Describes a run slice that begins.
  struct RunSliceStart {
    bool engine;                    // else a host
    std::chrono::nanoseconds left;  // expected for one thread to run the stream's commands
    SinceLastWait before;           // for a host
  };
  /// Enter and leave the clean state for commands: called once per run slice, on a thread that is
  /// about to run kernels, and afterwards. The value returned is passed to leave_commands. Must not
  /// throw: the stream would be left without an owner.
  void* (*enter_commands)(const RunSliceStart& start) = nullptr;
  void (*leave_commands)(void* state) noexcept = nullptr;

  /// The number of threads for a command, and the number that its runner has otherwise.
  struct Team {
    int threads;
    int otherwise;
    bool engine;
  };
  /// Called around a command whose expected time is long (Cost::is_long()), or whose number of
  /// threads must not depend on which thread runs it. begin_compute's result is passed to
  /// end_compute. Neither may throw.
  Team (*begin_compute)(Cost cost, bool engine) = nullptr;
  void (*end_compute)(Team team) noexcept = nullptr;

  /// Called around a wait for the device, including one made by a command (bindings: releases the
  /// GIL if held).
  void* (*begin_wait)() = nullptr;
  void (*end_wait)(void* state) noexcept = nullptr;

  /// Whether the calling thread, which has found a queue full, runs commands until there is room;
  /// otherwise it sleeps. Null: it runs them.
  bool (*runs_when_full)() = nullptr;

  /// Called in the outermost wait of a host thread, between commands (every 20 ms), and on a signal
  /// or every 50 ms while it sleeps; no lock is held. Returns to continue the wait, throws to end
  /// it (bindings: Python's signals). The queue stays intact.
  void (*check_interrupt)() = nullptr;

  /// Called when the device comes into use in this process: before any command is enqueued, perhaps
  /// more than once, and with locks held. Must not throw.
  void (*begin_use)() noexcept = nullptr;

  /// Called with no lock held when a host has observed that work is complete (HappensBefore).
  void (*on_host_progress)() = nullptr;

  /// Finds what runs the kernels of a device, which exists, with TORCH_OPENREG_EXECUTOR=process.
  RemoteRunner& (*find_remote_runner)(int device) = nullptr;

  /// Called with a lock held when a fault is armed or disarmed (fault_table.h). `any`: whether any
  /// is armed now.
  void (*faults_armed)(bool any) = nullptr;
};

/// Replaces the non-null members, both of a pair at once. Thread safe; meant for library
/// initialisation and tests.
void install_callbacks(const Callbacks& callbacks);
/// The installed callbacks; valid until the process ends.
const Callbacks& current_callbacks() noexcept;

/// Calls Callbacks::begin_wait and end_wait: around a wait, or around commands that a host runs
/// inside a call that does not wait.
class WaitScope {
 public:
  WaitScope()
      : callbacks_(current_callbacks()),
        state_(callbacks_.begin_wait ? callbacks_.begin_wait() : nullptr) {}
  ~WaitScope() {
    if (callbacks_.end_wait) callbacks_.end_wait(state_);
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

  const Callbacks& callbacks() const noexcept { return callbacks_; }

 private:
  const Callbacks& callbacks_;
  void* const state_;
};

}  // namespace openreg
