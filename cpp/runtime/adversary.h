#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/schedule.h"
#include "runtime/callbacks.h"
#include "runtime/stream_impl.h"
#include "runtime/wait.h"

/// Carries out the adversarial schedules (schedule.h). Engines leave all streams alone, and hosts
/// run commands inside their calls: in the latest schedule what they wait or ask for, as late as
/// possible; in the random one also others, at any call. Engines work while a gate is open
/// (engine_gate.h).
namespace openreg::adversary {

inline constinit std::atomic<bool> g_is_active{false};
/// Whether the schedule is an adversarial one.
inline bool is_active() noexcept { return g_is_active.load(std::memory_order_relaxed); }

/// Begins a schedule. The device is in use; called by one thread at a time.
void apply(const Schedule& schedule);

// The hooks, which are called only if is_active():

/// Called when `record` has been published on the stream, at this position. What it refers to is
/// alive. Throws what ends the thread.
void submitted(StreamImpl& stream, const Record& record, std::uint64_t position,
               Backpressure backpressure);

/// For each stream, how many commands must have completed before goals are reached: those of the
/// goals' streams, and those that these wait for. A value type.
class RequiredCommands {
 public:
  explicit RequiredCommands(std::span<const Goal> goals);

  /// Whether a goal needs the stream's next command.
  bool includes_next(const StreamImpl& stream) const noexcept;

 private:
  std::unordered_map<const StreamImpl*, std::uint64_t> commands_;
};

/// Called by a host that works while it waits for what `required` was made of: in the latest
/// schedule, runs what it needs, of that what was submitted last first; in the random one, a
/// command of any stream. `before` is for the run slices. Returns soon, also if there is more to
/// run. False: there was nothing to run, or the thread runs a command.
bool work(const RequiredCommands& required, Callbacks::SinceLastWait before);

enum class QueryKind : bool { kOnce, kUntilReached };
/// Called by a host that asks whether the goal is reached: runs what this needs, as a wait would,
/// but does not wait. It may refuse, and then runs nothing: in the random schedule at any time; in
/// the latest one the first time that a host asks about these commands, unless it is sure to ask
/// again. Throws what Callbacks::check_interrupt throws.
void poll(const Goal& goal, QueryKind kind = QueryKind::kOnce);

}  // namespace openreg::adversary
