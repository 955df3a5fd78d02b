#include "runtime/happens_before.h"

#include <algorithm>

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
//   does not exist.
//
// That a stream is in fact ahead, that a queue was full, or that the allocator has polled an event,
// is chance and orders nothing.

std::uint64_t VectorClock::number_of(std::uint32_t stream) const noexcept {
  const std::uint64_t number = numbers_ && stream < numbers_->size() ? (*numbers_)[stream] : 0;
  return stream == last_.stream ? std::max(number, last_.number) : number;
}

bool VectorClock::join(const VectorClock& other) {
  bool changes = !includes(other.last_);
  if (other.numbers_ && other.numbers_ != numbers_) {
    for (std::uint32_t i = 1; i < other.numbers_->size() && !changes; ++i)
      changes = (*other.numbers_)[i] > number_of(i);
  }
  if (!changes) return false;
  auto numbers = numbers_ ? *numbers_ : Numbers();
  const auto theirs = other.numbers_ ? other.numbers_->size() : 0;
  numbers.resize(std::max({numbers.size(), theirs, std::size_t{other.last_.stream} + 1}));
  for (std::size_t i = 0; i < theirs; ++i) numbers[i] = std::max(numbers[i], (*other.numbers_)[i]);
  auto& last = numbers[other.last_.stream];
  last = std::max(last, other.last_.number);
  numbers_ = std::make_shared<const Numbers>(std::move(numbers));
  return true;
}

std::atomic<HappensBefore*> HappensBefore::instance_{nullptr};

// Numbers go on when it is tracked again, as fences of earlier times may still exist.
void HappensBefore::track(bool on) {
  static HappensBefore& order = *new HappensBefore;  // used until the process ends
  instance_.store(on ? &order : nullptr, std::memory_order_release);
}

HappensBefore::State& HappensBefore::state_of(const Stream& stream) {
  auto& state = streams_[&stream];
  if (state.number == 0) state.number = static_cast<std::uint32_t>(streams_.size());
  if (state.seen_version != seen_version_) {
    state.clock.join(seen_);
    state.seen_version = seen_version_;
  }
  return state;
}

VectorClock HappensBefore::submit(const Stream& stream) {
  const LockGuard lock(mutex_);
  auto& [number, clock, version] = state_of(stream);
  clock.advance(number);
  return clock;
}

VectorClock HappensBefore::clock_of(const Stream& stream) {
  const LockGuard lock(mutex_);
  return state_of(stream).clock;
}

void HappensBefore::wait(const Stream& stream, const VectorClock& clock) {
  const LockGuard lock(mutex_);
  state_of(stream).clock.join(clock);
}

void HappensBefore::host_saw(const VectorClock& clock) {
  {
    const LockGuard lock(mutex_);
    if (seen_.join(clock)) ++seen_version_;
  }
  if (const auto call = current_callbacks().hosts_have_seen_more) call();
}

VectorClock HappensBefore::seen_by_hosts() {
  const LockGuard lock(mutex_);
  return seen_;
}

constinit thread_local bool UnseenWaits::unseen_ = false;

void note_record(Fence& fence, const Stream& stream) { fence.set_clock(clock_if_tracked(stream)); }

void note_ordered_after(const Stream& stream, const Fence& fence) {
  auto* const order = HappensBefore::get();
  if (order && fence.clock()) order->wait(stream, *fence.clock());
}

void note_host_saw(const Fence& fence) {
  auto* const order = HappensBefore::get();
  if (order && fence.clock() && !UnseenWaits::here()) order->host_saw(*fence.clock());
}

std::unique_ptr<const VectorClock> clock_if_tracked(const Stream& stream) {
  auto* const order = HappensBefore::get();
  return order && !in_bad_fork() ? std::make_unique<const VectorClock>(order->clock_of(stream))
                                 : nullptr;
}

void note_host_saw(const std::unique_ptr<const VectorClock>& before) {
  auto* const order = HappensBefore::get();
  if (order && before && !UnseenWaits::here()) order->host_saw(*before);
}

}  // namespace openreg
