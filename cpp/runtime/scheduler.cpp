#include "runtime/scheduler.h"

#include <cassert>

#include "base/counters.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/test_point.h"
#include "base/usable_cores.h"
#include "runtime/engine.h"
#include "runtime/host_expectation.h"
#include "runtime/run_slice.h"

namespace openreg {

// Note [Who runs a stream]
// A stream owns no thread, and has at most one owner:
//
//            producer, helping host               engine, helping host
//     Idle ---------------------------> Queued ------------------------> Running
//       ^                                 ^  ^                            |  |  |
//       |             nothing left to run |  |       quantum used up,     |  |  |
//       +---------------------------------|--|----------------------------+  |  |
//                                         |  +-------------------------------+  |
//                                         |          goal reached, host wanted  |
//                               fence fired                                     |
//                                       Parked <--------------------------------+
//                                                  next command waits for a fence
//
// - There are separate engines for long copies, as on a GPU: a copy and a kernel on two streams run
//   at the same time. A queued stream is in the run queue for the kind of its next command, and an
//   engine that reaches a command of the other kind releases the stream. Both kinds run records and
//   waits; for these the stream stays in the run queue that it was in last, so on a stream of
//   copies they do not wait for a kernel to end. Hosts run everything.
// - An engine that leaves its stream to a host (ReservedForHost, not in the figure) takes it back
//   if the host does not come in time.
// - The thread that makes brief commands ready runs them: the stream goes from Idle, or from
//   Parked, directly to Running (brief_run.h).
// - Engines alone guarantee progress. Hosts that run commands while they wait only make it faster.
//   In an adversarial schedule engines are held back until a gate opens (engine_gate.h).
// - make_runnable() is the only place that hands a stream over: to a host that has asked for it
//   (then it never leaves Running), else to the run queue.
// - A producer that publishes and then looks for an owner races with an owner that gives up and
//   then looks for work. Four sequentially consistent operations decide it: the producer stores the
//   tail and loads the state, the owner stores the state and loads the tail. At least one of them
//   sees the other's store. They are operations and not fences so that the thread sanitizer
//   understands them.

namespace {

using State = Ownership::State;

bool is_high(const StreamImpl& stream) noexcept { return stream.level == Priority::kHigh; }

}  // namespace

Scheduler& Scheduler::get() {
  static Scheduler& scheduler = *new Scheduler;  // engines use it until the process ends
  return scheduler;
}

Scheduler::Scheduler()
    : engines_{Engines(EngineKind::kCompute, settings().engines), Engines(EngineKind::kCopy, 1)} {}

bool Scheduler::is_runnable(const StreamImpl& stream) {
  const LockGuard lock(scheduler_mutex);
  return !stream.ownership.is(State::kParked) || stream.ownership.parked_on_->done();
}

void Scheduler::schedule(StreamImpl& stream) {
  Transition transition(*this);
  if (!stream.ownership.is(State::kIdle)) return;
  if (stream.drained()) return;  // another thread was quicker and has run it
  make_runnable(stream, transition);
}

bool Scheduler::take_idle(StreamImpl& stream) {
  const LockGuard lock(scheduler_mutex);
  if (!stream.ownership.is(State::kIdle) || stream.drained()) return false;
  stream.ownership.set(State::kRunning);
  return true;
}

bool Scheduler::go_idle(StreamImpl& stream) {
  reach(TestPoint::kGoingIdle);
  const LockGuard lock(scheduler_mutex);
  assert(stream.ownership.is(State::kRunning));
  return try_idle(stream);
}

void Scheduler::release(StreamImpl& stream) {
  Transition transition(*this);
  assert(stream.ownership.is(State::kRunning));
  if (!stream.drained() || !try_idle(stream)) make_runnable(stream, transition);
}

bool Scheduler::hand_over(StreamImpl& stream) {
  Transition transition(*this);
  assert(stream.ownership.is(State::kRunning));
  if (stream.ownership.helpers_.empty()) return false;
  make_runnable(stream, transition);
  return true;
}

bool Scheduler::reserve_for_host(StreamImpl& stream, HostExpectation::Clock::time_point end) {
  Engines& engines = of(EngineKind::kCompute);
  UniqueLock lock(scheduler_mutex);
  assert(stream.ownership.is(State::kRunning));
  if (!stream.ownership.helpers_.empty() || has_ready(engines.kind) || stopping()) return true;
  stream.ownership.set(State::kReservedForHost);
  ++engines.sleeping;
  while (engines.notified == 0 && lock.wait_until(engines.work, end)) {
  }
  --engines.sleeping;
  if (engines.notified > 0) {
    --engines.notified;
    --engines.visitors;
  }
  if (!stream.ownership.is(State::kReservedForHost)) return false;
  stream.ownership.set(State::kRunning);
  return true;
}

void Scheduler::set_parked(StreamImpl& stream, Fence& fence) {
  const LockGuard lock(scheduler_mutex);
  assert(stream.ownership.is(State::kRunning));
  stream.ownership.set(State::kParked);
  stream.ownership.parked_on_ = &fence;
  wake_helpers(stream);  // they can help with the stream that this one waits for
  counters::parks.add();
}

void Scheduler::unpark(StreamList streams, StreamList* owned) {
  Transition transition(*this);
  while (StreamImpl* const stream = streams.pop_front()) {
    assert(stream->ownership.is(State::kParked));
    stream->ownership.parked_on_ = nullptr;
    if (owned && stream->ownership.helpers_.empty()) {
      stream->ownership.set(State::kRunning);
      owned->push_back(*stream);
    } else {
      make_runnable(*stream, transition);
    }
  }
}

Scheduler::Claim Scheduler::claim(StreamImpl& begin, Waiter& waiter) {
  const LockGuard lock(scheduler_mutex);
  const auto [stream, blocking_fence] = end_of_chain(begin);
  if (!stream) return {Claim::kOutside, nullptr, FenceRef(blocking_fence)};
  switch (stream->ownership.state_.load(std::memory_order_relaxed)) {
    case State::kIdle:
      if (stream->drained()) return {Claim::kNothing, stream, FenceRef(blocking_fence)};
      break;  // the producer is on its way here
    case State::kQueued:
      dequeue(*stream);
      break;
    case State::kReservedForHost:
      break;
    case State::kRunning:
      if (runs_here(*stream)) throw_self_wait();
      [[fallthrough]];
    case State::kParked:  // its fence has fired: another thread will make it runnable
      stream->ownership.helpers_.push_back(waiter);
      stream->ownership.wanted_.fetch_add(1, std::memory_order_relaxed);
      return {Claim::kRegistered, stream, FenceRef(blocking_fence)};
  }
  stream->ownership.set(State::kRunning);
  counters::helps.add();
  return {Claim::kOwned, stream, FenceRef(blocking_fence)};
}

Scheduler::Link Scheduler::end_of_chain(StreamImpl& begin) {
  Link link{&begin, nullptr};
  // Every fence was recorded before the wait for it was enqueued: the chain has no cycle.
  while (link.stream && link.stream->ownership.is(State::kParked) &&
         !link.stream->ownership.parked_on_->done()) {
    link.blocking_fence = link.stream->ownership.parked_on_;
    link.stream = link.blocking_fence->source();
  }
  return link;
}

StreamImpl* Scheduler::take_queued(
    const std::function<StreamImpl*(const std::vector<StreamImpl*>& queued)>& choose) {
  const LockGuard lock(scheduler_mutex);
  std::vector<StreamImpl*> queued;
  for (Engines& engines : engines_) {
    for (const StreamList& queue : engines.run_queues) {
      for (StreamImpl* stream = queue.front(); stream; stream = StreamList::next(*stream))
        queued.push_back(stream);
    }
  }
  StreamImpl* const chosen = choose(queued);
  if (!chosen) return nullptr;
  dequeue(*chosen);
  chosen->ownership.set(State::kRunning);
  counters::helps.add();
  return chosen;
}

bool Scheduler::withdraw(StreamImpl& stream, Waiter& waiter) {
  const LockGuard lock(scheduler_mutex);
  if (waiter.granted) {
    waiter.granted = nullptr;
    return true;
  }
  stream.ownership.helpers_.remove(waiter);
  stream.ownership.wanted_.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Scheduler::make_runnable(StreamImpl& stream, Transition& transition) {
  if (Waiter* const helper = stream.ownership.helpers_.pop_front()) {
    stream.ownership.wanted_.fetch_sub(1, std::memory_order_relaxed);
    stream.ownership.set(State::kRunning);
    counters::grants.add();
    helper->granted = &stream;
    helper->wake();
    return;
  }
  stream.ownership.set(State::kQueued);
  make_ready(stream);
  call_engine(of(stream.ownership.queued_for_), transition);
}

bool Scheduler::try_idle(StreamImpl& stream) {
  stream.ownership.state_.store(State::kIdle, std::memory_order_seq_cst);
  if (stream.queue.published_more()) {
    stream.ownership.set(State::kRunning);
    return false;
  }
  wake_helpers(stream);  // nothing else would wake a waiter for room
  return true;
}

void Scheduler::wake_helpers(StreamImpl& stream) {
  for (Waiter* helper = stream.ownership.helpers_.front(); helper;
       helper = stream.ownership.helpers_.next(*helper)) {
    helper->wake();
  }
}

void Scheduler::make_ready(StreamImpl& stream) {
  stream.ownership.queued_for_ = stream.next_engine().value_or(stream.ownership.queued_for_);
  Engines& engines = of(stream.ownership.queued_for_);
  engines.run_queues[is_high(stream) ? 0 : 1].push_back(stream);
  engines.ready.fetch_add(1, std::memory_order_relaxed);
  if (is_high(stream)) engines.ready_high.fetch_add(1, std::memory_order_relaxed);
}

void Scheduler::dequeue(StreamImpl& stream) {
  assert(stream.ownership.is(State::kQueued));
  Engines& engines = of(stream.ownership.queued_for_);
  engines.run_queues[is_high(stream) ? 0 : 1].remove(stream);
  engines.ready.fetch_sub(1, std::memory_order_relaxed);
  if (is_high(stream)) engines.ready_high.fetch_sub(1, std::memory_order_relaxed);
}

StreamImpl* Scheduler::pop(Engines& engines) {
  for (const StreamList& queue : engines.run_queues) {
    if (StreamImpl* const stream = queue.front()) {
      dequeue(*stream);
      stream->ownership.set(State::kRunning);
      return stream;
    }
  }
  return nullptr;
}

void Scheduler::hold_engines(bool hold) {
  Transition transition(*this);
  holding_.store(hold, std::memory_order_relaxed);
  for (Engines& engines : engines_) {
    for (int ready = engines.ready.load(std::memory_order_relaxed); ready > 0; --ready)
      call_engine(engines, transition);
  }
}

void Scheduler::start() {
  for (Engines& engines : engines_) {
    {
      const LockGuard lock(scheduler_mutex);
      if (engines.threads > 0) continue;
      ++engines.threads;
      ++engines.visitors;
    }
    start_engine(engines);
  }
}

void Scheduler::start_engine(Engines& engines) {
  try {
    start_engine_thread(engines.kind);
  } catch (...) {
    const LockGuard lock(scheduler_mutex);
    --engines.threads;
    --engines.visitors;
    throw;
  }
}

void Scheduler::call_engine(Engines& engines, Transition& transition) {
  if (holds_engines()) return;
  // Each visitor takes one stream.
  if (engines.ready.load(std::memory_order_relaxed) <= engines.visitors) return;
  auto& called = transition.called[index(engines.kind)];
  if (engines.sleeping > engines.notified) {
    ++engines.notified;
    ++engines.visitors;
    ++called.to_notify;
  } else if (engines.threads - engines.blocked < engines.wanted) {
    if (engines.threads >= engines.wanted) counters::spares.add();
    ++engines.threads;
    ++engines.visitors;
    ++called.to_start;
  }
}

Scheduler::Transition::~Transition() {
  // Only after the unlock: a thread that is woken while the mutex is held would block on it.
  scheduler_mutex.unlock();
  for (Engines& engines : scheduler_.engines_) {
    auto [to_notify, to_start] = called[index(engines.kind)];
    for (; to_notify > 0; --to_notify) engines.work.notify_one();
    for (; to_start > 0; --to_start) {
      try {
        scheduler_.start_engine(engines);
      } catch (const Error&) {
        // There is already an engine of this kind. The work waits for it, for a host that helps, or
        // for the next attempt.
      }
    }
  }
}

StreamImpl* Scheduler::next_stream(EngineKind kind, bool arriving) {
  Engines& engines = of(kind);
  bool has_spun = false;
  if (arriving) leave_core_to_hosts();
  UniqueLock lock(scheduler_mutex);
  if (arriving) --engines.visitors;
  while (true) {
    if (stopping()) {
      lock.unlock();
      block_forever();
    }
    if (engines.threads - engines.blocked > engines.wanted) {
      --engines.threads;
      lock.unlock();
      Transition pass_on(*this);  // this engine may have been woken for work that it does not take
      call_engine(engines, pass_on);
      return nullptr;
    }
    if (!holds_engines()) {
      if (StreamImpl* const stream = pop(engines)) return stream;
    }
    if (!has_spun) {
      has_spun = true;
      ++engines.visitors;
      lock.unlock();
      if (!poll_before_sleep(*this, kind))
        refresh_usable_cores();  // now, when nothing waits for this engine
      lock.lock();
      --engines.visitors;
      continue;
    }
    ++engines.sleeping;
    while (engines.notified == 0) lock.wait(engines.work);
    --engines.sleeping;
    --engines.notified;
    lock.unlock();
    leave_core_to_hosts();
    lock.lock();
    --engines.visitors;
  }
}

void Scheduler::block_engine(EngineKind kind) {
  Transition transition(*this);
  ++of(kind).blocked;
  call_engine(of(kind), transition);
}

void Scheduler::unblock_engine(EngineKind kind) {
  const LockGuard lock(scheduler_mutex);
  --of(kind).blocked;
}

void Scheduler::begin_running() noexcept {
  // Races with stop() as a producer does with an owner: at least one of the two sees the other.
  running_.fetch_add(1, std::memory_order_seq_cst);
  if (!stopping_.load(std::memory_order_seq_cst)) return;
  block_forever();
}

void Scheduler::end_running() noexcept {
  if (running_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  if (!stopping_.load(std::memory_order_seq_cst)) return;
  const LockGuard lock(scheduler_mutex);
  quiet_.notify_all();
}

void Scheduler::stop() noexcept {
  const LockGuard lock(scheduler_mutex);
  stopping_.store(true, std::memory_order_seq_cst);
}

void Scheduler::wait_until_stopped() noexcept {
  UniqueLock lock(scheduler_mutex);
  while (running_.load(std::memory_order_seq_cst) != 0) lock.wait(quiet_);
}

}  // namespace openreg
