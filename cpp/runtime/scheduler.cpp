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
// A stream owns no thread, and has one owner at most:
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
// - Engines alone guarantee progress. Hosts that wait and work meanwhile only make it faster.
// - make_runnable() is the one place where a stream is given away: to a host that has asked for it
//   (then it never leaves Running), else to the run queue.
// - The race between a producer that publishes and looks for an owner, and an owner that gives up
//   and looks for work, is decided by four sequentially consistent operations: the producer stores
//   the tail and loads the state, the owner stores the state and loads the tail. One of them sees
//   the other. They are operations and not fences so that the thread sanitizer understands them.

namespace {

bool is(const Strand& strand, Strand::State state) noexcept {
  return strand.state.load(std::memory_order_relaxed) == state;
}
bool is_high(const Strand& strand) noexcept { return strand.level == Priority::kHigh; }

}  // namespace

Scheduler& Scheduler::get() {
  static Scheduler& scheduler = *new Scheduler;  // engines use it until the process is gone
  return scheduler;
}

Scheduler::Scheduler() : wanted_engines_(settings().engines) {}

void Scheduler::schedule(Strand& strand) {
  Transition transition(*this);
  if (!is(strand, Strand::State::kIdle)) return;
  if (strand.drained()) return;  // somebody was quicker, and is through with it
  make_runnable(strand, transition);
}

bool Scheduler::go_idle(Strand& strand) {
  reach(TestPoint::kGoingIdle);
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  assert(is(strand, Strand::State::kRunning));
  strand.state.store(Strand::State::kParked, std::memory_order_relaxed);
  strand.parked_on = &fence;
  count(g_counters.parks);
}

void Scheduler::unpark(IntrusiveList<Strand, &Strand::link> strands) {
  Transition transition(*this);
  while (Strand* const strand = strands.pop_front()) {
    assert(is(*strand, Strand::State::kParked));
    strand->parked_on = nullptr;
    make_runnable(*strand, transition);
  }
}

Scheduler::Claim Scheduler::claim(Strand& begin, Waiter& waiter) {
  const std::lock_guard lock(mutex_);
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
    case Strand::State::kParked:  // its fence is done: somebody is about to make it runnable
      strand->helpers.push_back(waiter);
      strand->wanted.fetch_add(1, std::memory_order_relaxed);
      return {Claim::kRegistered, strand, FenceRef(hop)};
  }
  strand->state.store(Strand::State::kRunning, std::memory_order_relaxed);
  count(g_counters.helps);
  return {Claim::kOwned, strand, FenceRef(hop)};
}

bool Scheduler::withdraw(Strand& strand, Waiter& waiter) {
  const std::lock_guard lock(mutex_);
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
  call_engine(transition);
}

bool Scheduler::try_idle(Strand& strand) {
  strand.state.store(Strand::State::kIdle, std::memory_order_seq_cst);
  if (strand.tail.load(std::memory_order_seq_cst) != strand.head.load(std::memory_order_relaxed)) {
    strand.state.store(Strand::State::kRunning, std::memory_order_relaxed);
    return false;
  }
  // Who waits for room has nothing else that would wake it.
  for (Waiter* helper = strand.helpers.front(); helper; helper = strand.helpers.next(*helper)) {
    helper->wake();
  }
  return true;
}

void Scheduler::enqueue(Strand& strand) {
  run_queues_[is_high(strand) ? 0 : 1].push_back(strand);
  ready_.fetch_add(1, std::memory_order_relaxed);
  if (is_high(strand)) ready_high_.fetch_add(1, std::memory_order_relaxed);
}

void Scheduler::dequeue(Strand& strand) {
  assert(is(strand, Strand::State::kQueued));
  run_queues_[is_high(strand) ? 0 : 1].remove(strand);
  ready_.fetch_sub(1, std::memory_order_relaxed);
  if (is_high(strand)) ready_high_.fetch_sub(1, std::memory_order_relaxed);
}

Strand* Scheduler::pop() {
  for (const RunQueue& queue : run_queues_) {
    if (Strand* const strand = queue.front()) {
      dequeue(*strand);
      strand->state.store(Strand::State::kRunning, std::memory_order_relaxed);
      return strand;
    }
  }
  return nullptr;
}

void Scheduler::start() {
  {
    const std::lock_guard lock(mutex_);
    if (engines_ > 0) return;
    ++engines_;
    ++visitors_;
  }
  start_engine();
}

void Scheduler::start_engine() {
  try {
    start_engine_thread();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --engines_;
    --visitors_;
    throw;
  }
}

void Scheduler::call_engine(Transition& transition) {
  // Every visitor takes one stream.
  if (ready_.load(std::memory_order_relaxed) <= visitors_) return;
  if (sleeping_ > notified_) {
    ++notified_;
    ++visitors_;
    ++transition.to_notify;
  } else if (engines_ - blocked_ < wanted_engines_) {
    if (engines_ >= wanted_engines_) count(g_counters.spares);
    ++engines_;
    ++visitors_;
    ++transition.to_start;
  }
}

Scheduler::Transition::~Transition() {
  // Only now: a thread that is woken while we hold the mutex would run into it.
  lock_.unlock();
  for (; to_notify > 0; --to_notify) scheduler_.work_.notify_one();
  for (; to_start > 0; --to_start) {
    try {
      scheduler_.start_engine();
    } catch (const Error&) {
      // There is an engine already. What this one was for waits for it, or for a host that helps,
      // or for the next attempt.
    }
  }
}

Strand* Scheduler::next_strand(bool arriving) {
  bool has_spun = false;
  std::unique_lock lock(mutex_);
  if (arriving) --visitors_;
  while (true) {
    if (stopping()) {
      lock.unlock();
      stand_still();
    }
    if (engines_ - blocked_ > wanted_engines_) {
      --engines_;
      lock.unlock();
      Transition pass_on(*this);  // it may have been woken for work that it does not take
      call_engine(pass_on);
      return nullptr;
    }
    if (Strand* const strand = pop()) return strand;
    if (!has_spun) {
      has_spun = true;
      ++visitors_;
      lock.unlock();
      spin_until([this] { return has_ready() || stopping(); });
      lock.lock();
      --visitors_;
      continue;
    }
    ++sleeping_;
    work_.wait(lock, [this] { return notified_ > 0; });
    --sleeping_;
    --notified_;
    --visitors_;
  }
}

void Scheduler::block_engine() {
  Transition transition(*this);
  ++blocked_;
  call_engine(transition);
}

void Scheduler::unblock_engine() {
  const std::lock_guard lock(mutex_);
  --blocked_;
}

void Scheduler::begin_running() noexcept {
  // Against stop(), as for a producer and an owner: one of the two sees the other.
  running_.fetch_add(1, std::memory_order_seq_cst);
  if (!stopping_.load(std::memory_order_seq_cst)) return;
  stand_still();
}

void Scheduler::end_running() noexcept {
  if (running_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  if (!stopping_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(mutex_);
  quiet_.notify_all();
}

void Scheduler::stop(bool wait) noexcept {
  std::unique_lock lock(mutex_);
  stopping_.store(true, std::memory_order_seq_cst);
  if (!wait) return;
  quiet_.wait(lock, [this] { return running_.load(std::memory_order_seq_cst) == 0; });
}

}  // namespace openreg
