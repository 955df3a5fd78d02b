#pragma once

#include <atomic>
#include <vector>

#include "runtime/fence.h"
#include "runtime/schedule.h"
#include "runtime/stream_impl.h"

/// Carries out the adversarial schedules (schedule.h). Engines leave all streams alone, and hosts
/// run commands inside their calls: in the latest schedule what they wait or ask for, as late as
/// possible; in the random one also others, at any call. Engines work while hosts lose patience
/// (patience.h).
namespace openreg::adversary {

inline constinit std::atomic<bool> g_acts{false};
/// Whether the schedule is an adversarial one.
inline bool acts() noexcept { return g_acts.load(std::memory_order_relaxed); }

/// Begins a schedule. The device is in use; called by one thread at a time.
void apply(const Schedule& schedule);

// The hooks, which are called only if acts():

/// A command has been published on the stream. Throws what ends the thread.
void submitted(StreamImpl& stream, Backpressure backpressure);

/// Called by a host that works while it waits: in the random schedule, runs one command of any
/// stream. False: there is none, it is not the random schedule, or the thread runs a command.
bool run_any();

/// Called by a host that asks whether the fence, or if it is null all of the stream, has completed:
/// runs what this needs, as a wait would, but does not wait. The random schedule may refuse. Throws
/// what Callbacks::check_interrupt throws.
void poll(StreamImpl& stream, const Fence* fence);

/// The order in which a host waits for several streams: in the latest schedule, the one whose next
/// command was submitted last comes first.
void order(std::vector<FenceRef>& marks);

}  // namespace openreg::adversary
