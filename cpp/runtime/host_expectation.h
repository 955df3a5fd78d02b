#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/callbacks.h"
#include "runtime/command.h"

namespace openreg {

class Scheduler;
struct StreamImpl;

// Note [What engines and hosts expect of each other]
//
// A host that waits runs the commands of its stream itself, with a team of threads: on two cores in
// half the time that an engine takes, which computes with one thread. An engine that has begun a
// command competes with that team for the cores. And a wake-up costs more than a small command. So
// an engine waits in six places before it runs a stream, or gives one up:
//
// - poll_before_idle: the stream has nothing left to run. The engine polls for kSpinTime. A launch
//   then costs the producer neither a lock nor a wake-up.
// - poll_before_sleep: no stream is ready. The engine polls for kSpinTime before it sleeps.
// - leave_core_to_hosts: the engine has been woken, and the process may use one core only. The
//   engine sleeps until hosts have run nothing for kHostsIdle, at most kMostSleeps times.
// - wait_for_expected_host: the next command takes kWorthWaiting or more, and a host is expected to
//   wait before a team would have run it, and within kSoon. The engine leaves the stream to the
//   host. Host waits are periodic, so the time that a host was away before its last wait predicts
//   the next one; it is given half as long again.
// - yield_before_long: the next command is long (Cost::kLong) and the last of the stream, which is
//   often followed by a wait. The engine polls for kSpinTime, once for each command.
// - Scheduler::holds_engines: an adversarial schedule is in force. The engine runs nothing
//   (engine_gate.h).
//
// A host that waits for a stream that another thread runs polls for kSpinTime, too, and then
// sleeps; it checks for an interrupt every kInterruptCheckWhileHelping or
// kInterruptCheckWhileAsleep. From its earlier waits it decides with how many threads it computes:
// Note [Teams of hosts] in backend/thread_count_tuner.cpp (kSpinOfTeams, kWarmUp, kPart). How many
// threads a long command gets is in Note [Teams] in backend/compute_threads.cpp (kOutlastsHost).

/// The thresholds of Note [What engines and hosts expect of each other], except kSpinTime
/// (base/spin.h) and Cost::kLong (runtime/command.h), from which a command gets a team.
namespace thresholds {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long an engine runs one stream while another one is ready: time, commands.
inline constexpr milliseconds kQuantum{1};
inline constexpr int kQuantumCommands = 64;

inline constexpr milliseconds kHostsIdle{1};
inline constexpr int kMostSleeps = 10;

/// Some ten times what handing a stream over costs.
inline constexpr microseconds kWorthWaiting{100};
/// The longest time until the host is expected. Not longer, because an engine has a team, too, for
/// a command that takes ten milliseconds, which gains more from beginning early. A layer's forward
/// and backward passes of 8 ms took up to 60 ms if an engine began them while the host was still
/// launching.
inline constexpr milliseconds kSoon{2};

/// How often a waiting host checks for an interrupt.
inline constexpr milliseconds kInterruptCheckWhileHelping{20};
inline constexpr milliseconds kInterruptCheckWhileAsleep{50};

/// How long the threads of a team spin after a parallel region, and when they have certainly
/// stopped.
inline constexpr milliseconds kSpinOfTeams{5};
inline constexpr milliseconds kWarmUp{8};
/// The shortest time over which a host compares waits with and without its team.
inline constexpr milliseconds kPart{2};

/// Longer than what a host launches beside a command.
inline constexpr milliseconds kOutlastsHost{10};

}  // namespace thresholds

/// When a host is expected to wait for a stream again: hints for engines, written by hosts.
struct HostExpectation {
  using Clock = std::chrono::steady_clock;

  /// Called when a host's wait for the stream has ended, before which the host was away for this
  /// time. `published`: the expected time of all commands published so far.
  void note_wait(Clock::time_point end, std::chrono::nanoseconds away,
                 std::chrono::nanoseconds published) noexcept;

  std::atomic<std::chrono::nanoseconds> cost_at_last_wait{};
  std::atomic<Clock::time_point> next_wait{Clock::time_point{}};
  /// The latest time at which engines still expect the host.
  std::atomic<Clock::time_point> latest_next_wait{Clock::time_point{}};
};

/// A wait of the calling host, and what it has done since its last one. From that a host decides
/// whether its team pays off (Callbacks::SinceLastWait).
class HostWaitStats {
 public:
  /// Begins a wait for `stream`; null if the wait does not count: waits of commands, and of hosts
  /// that only sleep.
  explicit HostWaitStats(StreamImpl* stream) noexcept;
  ~HostWaitStats();
  HostWaitStats(const HostWaitStats&) = delete;
  HostWaitStats& operator=(const HostWaitStats&) = delete;

  Callbacks::SinceLastWait before() const noexcept { return before_; }

 private:
  using Clock = HostExpectation::Clock;

  StreamImpl* const stream_;
  Callbacks::SinceLastWait before_;
  Clock::time_point begin_;

  static constinit thread_local Clock::time_point last_begin_;
  static constinit thread_local Clock::time_point last_end_;
  static constinit thread_local Callbacks::SinceLastWait::Waits waits_;
};

/// Called by the stream's owner when it is drained. Returns whether there is something to run.
bool poll_before_idle(const StreamImpl& stream, const Scheduler& scheduler, EngineKind kind);
/// Called by an engine that finds no stream ready. Returns whether one is ready, or the scheduler
/// stops.
bool poll_before_sleep(const Scheduler& scheduler, EngineKind kind);
/// Called by an engine that has been woken, before it looks for work.
void leave_core_to_hosts() noexcept;
/// Called by the stream's owner when it has something to run. Returns whether the engine still owns
/// the stream.
bool wait_for_expected_host(StreamImpl& stream, Scheduler& scheduler, EngineKind kind);
/// Called by the stream's owner when it has something to run. `yielded`: the number of the command
/// for which the engine polled last; once for each command. Returns whether it has polled now.
bool yield_before_long(StreamImpl& stream, const Scheduler& scheduler, EngineKind kind,
                       std::uint64_t& yielded);

}  // namespace openreg
