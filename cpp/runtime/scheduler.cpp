#include "runtime/scheduler.h"

#include <cassert>

#include "runtime/counters.h"
#include "runtime/engine.h"
#include "runtime/error.h"
#include "runtime/settings.h"
#include "runtime/spin.h"
#include "runtime/test_point.h"
#include "runtime/turn.h"

namespace openreg {

// Note [Streams as strands]
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
//   waits, for which the stream stays in the queue where it was: so on a stream for copies they do
//   not wait for a kernel to end. Hosts run everything.
// - The thread that makes brief commands ready runs them: the stream goes from Idle, or from
//   Parked, directly to Running (brief_run.h).
// - Engines alone guarantee progress. Hosts that run commands while they wait only make it faster.
// - make_runnable() is the only place that hands a stream over: to a host that has asked for it
//   (then it never leaves Running), else to the run queue.
// - A producer that publishes and then looks for an owner races with an owner that gives up and
//   then looks for work. Four sequentially consistent operations decide it: the producer stores the
//   tail and loads the state, the owner stores the state and loads the tail. At least one of them
//   sees the other's store. They are operations and not fences so that the thread sanitizer
//   understands them.

namespace {

bool is(const Strand& strand, Strand::State state) noexcept {
  return strand.state.load(std::memory_order_relaxed) == state;
}
bool is_high(const Strand& strand) noexcept { return strand.level == Priority::kHigh; }

}  // namespace

Scheduler& Scheduler::get() {
  static Scheduler& scheduler = *new Scheduler;  // engines use it until the process ends
  return scheduler;
}

Scheduler::Scheduler()
    : engines_{Engines(EngineKind::kCompute, settings().engines), Engines(EngineKind::kCopy, 1)} {}

bool Scheduler::moves(const Strand& strand) {
  const LockGuard lock(scheduler_mutex);
  return !is(strand, Strand::State::kParked) || strand.parked_on->done();
}

void Scheduler::schedule(Strand& strand) {
  Transition transition(*this);
  if (!is(strand, Strand::State::kIdle)) return;
  if (strand.drained()) return;  // another thread was quicker and has run it
  make_runnable(strand, transition);
}

bool Scheduler::take_idle(Strand& strand) {
  const LockGuard lock(scheduler_mutex);
  if (!is(strand, Strand::State::kIdle) || strand.drained()) return false;
  strand.state.store(Strand::State::kRunning, std::memory_order_relaxed);
  return true;
}

bool Scheduler::go_idle(Strand& strand) {
  reach(TestPoint::kGoingIdle);
  const LockGuard lock(scheduler_mutex);
  assert(is(strand, Strand::State::kRunning));
  return try_idle(strand);
}

void Scheduler::release(Strand& strand) {
  Transition transition(*this);
  assert(is(strand, Strand::State::kRunning));
  if (!strand.drained() || !try_idle(strand)) make_runnable(strand, transition);
}

bool Scheduler::hand_over(Strand& strand) {
  Transition transition(*this);
  assert(is(strand, Strand::State::kRunning));
  if (strand.helpers.empty()) return false;
  make_runnable(strand, transition);
  return true;
}

void Scheduler::set_parked(Strand& strand, Fence& fence) {
  const LockGuard lock(scheduler_mutex);
  assert(is(strand, Strand::State::kRunning));
  strand.state.store(Strand::State::kParked, std::memory_order_relaxed);
  strand.parked_on = &fence;
  wake_helpers(strand);  // they can help at the stream that this one waits for
  count(g_counters.parks);
}

void Scheduler::unpark(IntrusiveList<Strand, &Strand::link> strands,
                       IntrusiveList<Strand, &Strand::link>* owned) {
  Transition transition(*this);
  while (Strand* const strand = strands.pop_front()) {
    assert(is(*strand, Strand::State::kParked));
    strand->parked_on = nullptr;
    if (owned && strand->helpers.empty()) {
      strand->state.store(Strand::State::kRunning, std::memory_order_relaxed);
      owned->push_back(*strand);
    } else {
      make_runnable(*strand, transition);
    }
  }
}

Scheduler::Claim Scheduler::claim(Strand& begin, Waiter& waiter) {
  const LockGuard lock(scheduler_mutex);
  Strand* strand = &begin;
  Fence* hop = nullptr;
  // Every fence was recorded before the wait for it was submitted: the chain has no cycle.
  while (is(*strand, Strand::State::kParked) && !strand->parked_on->done()) {
    hop = strand->parked_on;
    strand = hop->source();
    if (!strand) return {Claim::kOutside, nullptr, FenceRef(hop)};
  }
  switch (strand->state.load(std::memory_order_relaxed)) {
    case Strand::State::kIdle:
      if (strand->drained()) return {Claim::kNothing, strand, FenceRef(hop)};
      break;  // the producer is on its way here
    case Strand::State::kQueued:
      dequeue(*strand);
      break;
    case Strand::State::kRunning:
      if (runs_here(*strand)) throw_self_wait();
      [[fallthrough]];
    case Strand::State::kParked:  // its fence has fired: another thread is about to make it
                                  // runnable
      strand->helpers.push_back(waiter);
      strand->wanted.fetch_add(1, std::memory_order_relaxed);
      return {Claim::kRegistered, strand, FenceRef(hop)};
  }
  strand->state.store(Strand::State::kRunning, std::memory_order_relaxed);
  count(g_counters.helps);
  return {Claim::kOwned, strand, FenceRef(hop)};
}

bool Scheduler::withdraw(Strand& strand, Waiter& waiter) {
  const LockGuard lock(scheduler_mutex);
  if (waiter.granted) {
    waiter.granted = nullptr;
    return true;
  }
  strand.helpers.remove(waiter);
  strand.wanted.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void Scheduler::make_runnable(Strand& strand, Transition& transition) {
  if (Waiter* const helper = strand.helpers.pop_front()) {
    strand.wanted.fetch_sub(1, std::memory_order_relaxed);
    strand.state.store(Strand::State::kRunning, std::memory_order_relaxed);
    count(g_counters.grants);
    helper->granted = &strand;
    helper->wake();
    return;
  }
  strand.state.store(Strand::State::kQueued, std::memory_order_relaxed);
  enqueue(strand);
  call_engine(of(strand.queued_for), transition);
}

bool Scheduler::try_idle(Strand& strand) {
  strand.state.store(Strand::State::kIdle, std::memory_order_seq_cst);
  if (strand.tail.load(std::memory_order_seq_cst) != strand.head.load(std::memory_order_relaxed)) {
    strand.state.store(Strand::State::kRunning, std::memory_order_relaxed);
    return false;
  }
  wake_helpers(strand);  // nothing else would wake a waiter for room
  return true;
}

void Scheduler::wake_helpers(Strand& strand) {
  for (Waiter* helper = strand.helpers.front(); helper; helper = strand.helpers.next(*helper)) {
    helper->wake();
  }
}

void Scheduler::enqueue(Strand& strand) {
  strand.queued_for = strand.next_engine().value_or(strand.queued_for);
  Engines& engines = of(strand.queued_for);
  engines.run_queues[is_high(strand) ? 0 : 1].push_back(strand);
  engines.ready.fetch_add(1, std::memory_order_relaxed);
  if (is_high(strand)) engines.ready_high.fetch_add(1, std::memory_order_relaxed);
}

void Scheduler::dequeue(Strand& strand) {
  assert(is(strand, Strand::State::kQueued));
  Engines& engines = of(strand.queued_for);
  engines.run_queues[is_high(strand) ? 0 : 1].remove(strand);
  engines.ready.fetch_sub(1, std::memory_order_relaxed);
  if (is_high(strand)) engines.ready_high.fetch_sub(1, std::memory_order_relaxed);
}

Strand* Scheduler::pop(Engines& engines) {
  for (const RunQueue& queue : engines.run_queues) {
    if (Strand* const strand = queue.front()) {
      dequeue(*strand);
      strand->state.store(Strand::State::kRunning, std::memory_order_relaxed);
      return strand;
    }
  }
  return nullptr;
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
  // Each visitor takes one stream.
  if (engines.ready.load(std::memory_order_relaxed) <= engines.visitors) return;
  auto& called = transition.called[index(engines.kind)];
  if (engines.sleeping > engines.notified) {
    ++engines.notified;
    ++engines.visitors;
    ++called.to_notify;
  } else if (engines.threads - engines.blocked < engines.wanted) {
    if (engines.threads >= engines.wanted) count(g_counters.spares);
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

Strand* Scheduler::next_strand(EngineKind kind, bool arriving) {
  Engines& engines = of(kind);
  bool has_spun = false;
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
    if (Strand* const strand = pop(engines)) return strand;
    if (!has_spun) {
      has_spun = true;
      ++engines.visitors;
      lock.unlock();
      spin_until([this, kind] { return has_ready(kind) || stopping(); });
      lock.lock();
      --engines.visitors;
      continue;
    }
    ++engines.sleeping;
    while (engines.notified == 0) lock.wait(engines.work);
    --engines.sleeping;
    --engines.notified;
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

void Scheduler::stop(bool wait) noexcept {
  UniqueLock lock(scheduler_mutex);
  stopping_.store(true, std::memory_order_seq_cst);
  if (!wait) return;
  while (running_.load(std::memory_order_seq_cst) != 0) lock.wait(quiet_);
}

}  // namespace openreg
