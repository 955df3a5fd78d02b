// The engines' part of Scheduler: when they are started, woken and retired, and what they do.

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/error.h"
#include "runtime/scheduler.h"
#include "runtime/spin.h"
#include "runtime/turn.h"

namespace openreg {

namespace {

// A turn ends after so much if another stream is runnable.
constexpr int kQuantumCommands = 64;
constexpr std::chrono::milliseconds kQuantumTime{1};

constinit thread_local bool t_engine = false;

void prepare_thread() noexcept {
  t_engine = true;
#ifdef SCHED_BATCH
  // An ordinary thread that is woken while the other cores are busy takes the core of the thread
  // that woke it: a launch would cost as much as the commands that the engine then runs.
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
#endif
#ifdef __linux__
  pthread_setname_np(pthread_self(), "openreg-engine");
#endif
}

class Quantum {
 public:
  bool used_up() noexcept {
    return ++commands_ > kQuantumCommands || Clock::now() - begin_ >= kQuantumTime;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
  int commands_ = 0;
};

// Looks at the drained stream for a while before giving it up: a launch then costs the producer
// neither a lock nor a wake.
bool linger(const Strand& strand, const Scheduler& scheduler) {
  const auto published = [&] { return !strand.drained(); };
  const auto wanted_elsewhere = [&] {
    return strand.wanted.load(std::memory_order_relaxed) > 0 || scheduler.has_ready() ||
           scheduler.stopping();
  };
  spin_until([&] { return published() || wanted_elsewhere(); });
  return published();
}

// Runs the stream, which the engine owns, until it is somebody else's.
void run_as_engine(Strand& strand, Scheduler& scheduler) {
  Turn turn(strand, Turn::Runner::kEngine);
  Quantum quantum;
  const bool low = strand.level != Priority::kHigh;
  while (!scheduler.stopping()) {
    if (!turn.has_work()) {
      turn.flush_counters();
      if (!linger(strand, scheduler) && scheduler.go_idle(strand)) return;
      continue;
    }
    if (strand.wanted.load(std::memory_order_relaxed) > 0 && scheduler.hand_over(strand)) return;
    if ((scheduler.has_ready() && quantum.used_up()) || (low && scheduler.has_ready_high())) {
      scheduler.release(strand);
      return;
    }
    if (!turn.step()) return;
  }
}

}  // namespace

bool on_engine() noexcept { return t_engine; }

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
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: signals are for the hosts
  std::error_code error;
  try {
    std::thread([this] { run_engine(); }).detach();
  } catch (const std::system_error& refused) {
    error = refused.code();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!error) {
    engines_started_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    --engines_;
    --visitors_;
  }
  throw Error("openreg: the system refuses a thread for an engine (got \"" + error.message() +
              "\", expected one more thread); raise `ulimit -u`");
}

Scheduler::Transition::~Transition() {
  // Only now: a thread that is woken while we hold the mutex would run into it.
  lock_.unlock();
  for (; to_notify > 0; --to_notify) scheduler_.work_.notify_one();
  for (; to_start > 0; --to_start) {
    try {
      scheduler_.start_engine();
    } catch (const Error&) {
      // There is an engine already. Work that it cannot do now waits for it, or for a host that
      // helps, or for the next attempt.
    }
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
    if (engines_ >= wanted_engines_) spares_.fetch_add(1, std::memory_order_relaxed);
    ++engines_;
    ++visitors_;
    ++transition.to_start;
  }
}

void Scheduler::run_engine() {
  prepare_thread();
  bool arriving = true;
  while (Strand* const strand = next_strand(std::exchange(arriving, false))) {
    run_as_engine(*strand, *this);
  }
}

// nullptr: there is one engine too many, this one ends.
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
