#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/command.h"
#include "runtime/callbacks.h"

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
//   poll_before_idle                  The stream has nothing left to run: polls for spin_until()'s
//   time. A
//                           launch then costs the producer neither a lock nor a wake-up.
//   poll_before_sleep       No stream is ready: polls for that time before the engine sleeps.
//   leave_core_to_hosts     The engine has been woken, and the process may use one core only:
//                           sleeps until hosts have run nothing for kHostsIdle, kMostSleeps times
//                           at most.
//   wait_for_expected_host  The next command takes kWorthWaiting or more, and a host is expected to
//                           wait: leaves the stream to it. Hosts wait in a rhythm, so the time that
//                           a host was away before its last wait predicts the next one.
//   yield_before_long     The next command is long (Cost::kLong) and the last of the stream,
//   which
//                           is often followed by a wait: polls once, for spin_until()'s time.
//   Scheduler::holds_engines  An adversarial schedule is in force: runs nothing (patience.h).
//
// A host that waits for a stream that another thread runs polls for spin_until()'s time, too, and
// then sleeps. It decides with how many threads it computes from the same rhythm: Note [Teams of
// hosts] in backend/thread_count_tuner.cpp. How many threads a long command gets is in Note [Teams]
// in backend/compute_threads.cpp.

/// The thresholds of this Note, but for spin_until()'s time (base/spin.h) and Cost::kLong
/// (base/command.h), which is also the time from which a command gets a team.
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
inline constexpr milliseconds kAskWhileHelping{20};
inline constexpr milliseconds kAskWhileAsleep{50};

/// How long the threads of a team spin after a parallel region, and when they have certainly
/// stopped.
inline constexpr milliseconds kSpinOfTeams{5};
inline constexpr milliseconds kSettling{8};
/// The shortest time over which a host compares waits with and without its team.
inline constexpr milliseconds kPart{2};

/// Longer than what a host launches beside a command.
inline constexpr milliseconds kOutlastsHost{10};

}  // namespace thresholds

/// When a host is expected to wait for a stream again: hints for engines, written by hosts.
struct HostExpectation {
  using Clock = std::chrono::steady_clock;

  /// A host's wait for the stream has ended, before which the host was away for this time.
  /// `published`: the expected time of all commands published so far.
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
/// Returns whether a stream is ready, or the scheduler stops.
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
