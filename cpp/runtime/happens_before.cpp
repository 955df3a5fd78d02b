#include "runtime/happens_before.h"

#include "runtime/callbacks.h"
#include "runtime/fence.h"
#include "runtime/process.h"
#include "runtime/stream.h"

namespace openreg {

// Note [Happens-before]
// Each submission that accesses memory has a number on its stream. A stream's clock says which
// submissions of each stream happen before its next one:
//
// - those of the stream itself;
// - those that happened before a record, if the stream has waited for it. A fence carries the clock
//   that its stream had at the record, so an event that is recorded before a write does not order
//   that write;
// - those that a host has seen complete, by a wait or a query. What one host has seen counts for
//   the later submissions of all: hosts pass on what they know through queues, locks and joins,
//   which cannot be seen here. So a race between two hosts may be missed, but none is reported that
//   does not exist;
// - what the streams of other ranks did before their part of a collective, if the stream has waited
//   for its own part and the ranks are threads of this process (Note [Milestones]).
//
// That a stream is in fact ahead, that a queue was full, or that the allocator has polled an event,
// is chance and orders nothing.

std::atomic<HappensBefore*> HappensBefore::instance_{nullptr};

constinit Mutex HappensBefore::tracking_;
bool HappensBefore::always_ = false;

// Numbers go on when it is tracked again, as fences of earlier times may still exist.
HappensBefore& HappensBefore::instance() {
  static HappensBefore& order = *new HappensBefore;  // used until the process ends
  return order;
}

void HappensBefore::track(bool on) {
  const LockGuard lock(tracking_);
  instance_.store(on || always_ ? &instance() : nullptr, std::memory_order_release);
}

void HappensBefore::track_always() {
  const LockGuard lock(tracking_);
  always_ = true;
  instance_.store(&instance(), std::memory_order_release);
}

HappensBefore::State& HappensBefore::state_of(const Stream& stream) {
  auto& state = streams_[&stream];
  if (state.number == 0) state.number = ++last_number_;
  if (state.seen_version != seen_version_) {
    state.clock.join(seen_);
    state.seen_version = seen_version_;
    complete(state);
  } else if (state.is_behind && state.reached != reached_) {
    complete(state);
  }
  return state;
}

void HappensBefore::complete(State& state) {
  state.is_behind = milestones_.complete(state.clock);
  state.reached = reached_;
}

VectorClock HappensBefore::submit(const Stream& stream) {
  const LockGuard lock(mutex_);
  auto& state = state_of(stream);
  state.clock.advance(state.number);
  return state.clock;
}

VectorClock HappensBefore::clock_of(const Stream& stream) {
  const LockGuard lock(mutex_);
  return state_of(stream).clock;
}

void HappensBefore::wait(const Stream& stream, const VectorClock& clock) {
  const LockGuard lock(mutex_);
  auto& state = state_of(stream);
  if (state.clock.join(clock)) complete(state);
}

void HappensBefore::host_observed(const VectorClock& clock) {
  {
    const LockGuard lock(mutex_);
    if (seen_.join(clock)) {
      seen_is_behind_ = milestones_.complete(seen_);
      ++seen_version_;
    }
  }
  if (const auto call = current_callbacks().on_host_progress) call();
}

VectorClock HappensBefore::seen_by_hosts() {
  const LockGuard lock(mutex_);
  return seen_;
}

std::uint32_t HappensBefore::add_milestones(std::uint64_t group, std::uint32_t home) {
  const LockGuard lock(mutex_);
  milestones_.add(++last_number_, group, home);
  return last_number_;
}

void HappensBefore::set_home(std::uint32_t sequence, std::uint32_t home) {
  const LockGuard lock(mutex_);
  milestones_.set_home(sequence, home);
}

void HappensBefore::end_milestones(std::uint32_t sequence) {
  const LockGuard lock(mutex_);
  milestones_.end(sequence);
}

void HappensBefore::reach(SubmissionId milestone, const Stream& stream) {
  const LockGuard lock(mutex_);
  milestones_.reach(milestone, state_of(stream).clock);
  ++reached_;
  if (seen_is_behind_) seen_is_behind_ = milestones_.complete(seen_);
}

void HappensBefore::wait(const Stream& stream, SubmissionId milestone) {
  VectorClock clock;
  clock.set_last(milestone);
  wait(stream, clock);
}

std::vector<SubmissionId> HappensBefore::ahead(const VectorClock& clock) {
  const LockGuard lock(mutex_);
  return milestones_.ahead(clock);
}

// What happens before a milestone may have been added since, and may have others that are ahead.
bool HappensBefore::may_lie_between(VectorClock clock, std::uint32_t first, std::uint32_t second) {
  const LockGuard lock(mutex_);
  if (!milestones_.complete(clock)) return false;
  for (const auto& milestone : milestones_.ahead(clock)) {
    if (milestones_.may_lie_between(milestone, first, second)) return true;
  }
  return false;
}

constinit thread_local bool InternalWaitScope::internal_ = false;

void note_record(Fence& fence, const Stream& stream) { fence.set_clock(clock_if_tracked(stream)); }

void note_ordered_after(const Stream& stream, const Fence& fence) {
  auto* const order = HappensBefore::get();
  if (order && fence.clock()) order->wait(stream, *fence.clock());
}

void note_host_observed(const Fence& fence) {
  auto* const order = HappensBefore::get();
  if (order && fence.clock() && !InternalWaitScope::here()) order->host_observed(*fence.clock());
}

std::unique_ptr<const VectorClock> clock_if_tracked(const Stream& stream) {
  auto* const order = HappensBefore::get();
  return order && !in_bad_fork() ? std::make_unique<const VectorClock>(order->clock_of(stream))
                                 : nullptr;
}

void note_host_observed(const std::unique_ptr<const VectorClock>& before) {
  auto* const order = HappensBefore::get();
  if (order && before && !InternalWaitScope::here()) order->host_observed(*before);
}

}  // namespace openreg
