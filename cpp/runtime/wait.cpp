#include "runtime/wait.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/counters.h"
#include "base/spin.h"
#include "base/test_point.h"
#include "runtime/adversary.h"
#include "runtime/callbacks.h"
#include "runtime/engine.h"
#include "runtime/engine_gate.h"
#include "runtime/host_expectation.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/trace.h"

namespace openreg {

// Note [The thread that waits, works]
// A host that waits takes over the stream of its goal, between two commands, and runs it. If that
// stream is parked, the host takes over the stream that it waits for, and so on along the chain.
// The host never runs an unrelated stream: a command that runs on top of a waiting one could wait
// for what lies below it on the same stack, and would delay the return.
//
// If the host can take over no stream, it sleeps until the stream is handed over, or the goal is
// reached, or the stream goes idle (there is no fence for room). A sleeping waiter is woken only
// through its word, so it checks the goal once more after it has registered.

namespace {

// Decides when the waiting thread checks for an interrupt.
class InterruptClock {
 public:
  // Only the outermost wait of a host is interrupted: an exception inside a command would be taken
  // for the command's failure.
  explicit InterruptClock(void (*check)()) noexcept : check_(in_command() ? nullptr : check) {
    restart();
  }

  bool enabled() const noexcept { return check_ != nullptr; }
  bool due() const noexcept {
    return check_ && now() - last_ >= thresholds::kInterruptCheckWhileHelping;
  }
  // Without a lock, and owning no stream: a signal handler may be Python code that uses the device.
  void ask() {
    check_();
    restart();
  }

 private:
  // Read at every command; the coarse clock costs a quarter of the precise one.
  static std::chrono::nanoseconds now() noexcept {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  void restart() noexcept {
    if (check_) last_ = now();
  }

  void (*check_)();
  std::chrono::nanoseconds last_{};
};

// Around a thread's sleep.
class SleepScope {
 public:
  SleepScope() : replaced_(in_command() ? this_engine() : std::nullopt) {
    counters::sleeps.add();
    if (replaced_) Scheduler::get().block_engine(*replaced_);
  }
  ~SleepScope() {
    if (replaced_) Scheduler::get().unblock_engine(*replaced_);
  }
  SleepScope(const SleepScope&) = delete;
  SleepScope& operator=(const SleepScope&) = delete;

 private:
  const std::optional<EngineKind> replaced_;
  const RunningScope mark_{false};  // exit does not wait for a thread that is itself waiting
};

class HostWait {
 public:
  enum class Meanwhile : bool { kSleeps, kWorks };

  /// `all`: the goals that the host waits for, one of which is `goal`.
  HostWait(const Goal& goal, std::span<const Goal> all, Meanwhile meanwhile,
           std::optional<Deadline> deadline = std::nullopt)
      : goal_(goal),
        all_(all),
        meanwhile_(meanwhile),
        deadline_(deadline),
        interrupt_(scope_.callbacks().check_interrupt) {}

  // False: the deadline was reached first.
  bool run() {
    while (!goal_.reached()) {
      if (expired()) return false;
      if (scheduler_.stopping()) block_forever();
      if (adversary::is_active() && meanwhile_ == Meanwhile::kWorks &&
          adversary::work(required(), stats_.before())) {
        if (interrupt_.due()) interrupt_.ask();
        continue;
      }
      waiter_.reset();
      const Scheduler::Claim claim =
          meanwhile_ == Meanwhile::kWorks
              ? scheduler_.claim(goal_.stream(), waiter_)
              : Scheduler::Claim{Scheduler::Claim::kOutside, nullptr, FenceRef()};
      switch (claim.result) {
        case Scheduler::Claim::kOwned:
          help(*claim.stream, claim.blocking_fence.get());
          break;
        case Scheduler::Claim::kRegistered:
        case Scheduler::Claim::kOutside:
          wait_for_others(claim);
          break;
        case Scheduler::Claim::kNothing:
          break;
      }
      if (std::exchange(ask_, false) && !goal_.reached()) interrupt_.ask();
    }
    return true;
  }

 private:
  bool reached(const Fence* blocking_fence) const noexcept {
    return goal_.reached() || (blocking_fence && blocking_fence->done());
  }

  // Until the wait ends: commands that are submitted meanwhile cannot add to them.
  const adversary::RequiredCommands& required() {
    return required_ ? *required_ : required_.emplace(all_);
  }

  // Runs a stream that this thread owns, until the goal or the blocking fence is reached, or the
  // stream is empty or parked.
  void help(StreamImpl& stream, const Fence* blocking_fence) {
    if (run_commands(stream, blocking_fence)) scheduler_.release(stream);
  }

  // False: this thread no longer owns the stream.
  bool run_commands(StreamImpl& stream, const Fence* blocking_fence) {
    RunSlice slice(stream, RunSlice::Runner::kHost, stats_.before());
    while (!scheduler_.stopping() && !reached(blocking_fence)) {
      if (!slice.has_work()) {
        if (scheduler_.go_idle(stream)) return false;
        continue;
      }
      if (interrupt_.due()) {
        ask_ = true;
        return true;
      }
      if (!slice.step()) return false;
    }
    return true;
  }

  void wait_for_others(const Scheduler::Claim& claim) {
    // The goal cannot be reached before the blocking fence; without one, wait for the goal itself.
    // Room has no fence: the wait ends when the stream is handed over or goes idle.
    Fence* const watched = claim.blocking_fence ? claim.blocking_fence.get() : goal_.fence().get();
    const bool may_sleep = !watched || watched->add(waiter_);
    if (may_sleep && !goal_.reached()) sleep(claim.result == Scheduler::Claim::kRegistered);
    if (watched) watched->remove(waiter_);
    if (claim.result != Scheduler::Claim::kRegistered) return;
    reach(TestPoint::kWithdrawing);
    if (!scheduler_.withdraw(*claim.stream, waiter_)) return;
    // A stream that was handed over must be run or released.
    if (ask_ || goal_.reached()) {
      scheduler_.release(*claim.stream);
    } else {
      help(*claim.stream, claim.blocking_fence.get());
    }
  }

  // Spins only for the device: work outside it takes longer than a wake-up, and may need this core.
  void sleep(bool spins) {
    if (spins && spin_until([this] { return waiter_.woken() || goal_.reached(); })) return;
    const SleepScope scope;
    while (!waiter_.woken() && !expired()) {
      waiter_.sleep(longest_sleep());
      if (interrupt_.enabled() && !waiter_.woken()) {
        ask_ = true;
        return;
      }
    }
  }

  bool expired() const { return deadline_ && std::chrono::steady_clock::now() >= *deadline_; }

  std::optional<std::chrono::milliseconds> longest_sleep() const {
    std::optional<std::chrono::milliseconds> longest;
    if (interrupt_.enabled()) longest = thresholds::kInterruptCheckWhileAsleep;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          *deadline_ - std::chrono::steady_clock::now());
      longest = std::clamp(left, std::chrono::milliseconds(0), longest.value_or(left));
    }
    return longest;
  }

  const Goal& goal_;
  const std::span<const Goal> all_;
  const Meanwhile meanwhile_;
  const HostWaitStats stats_{meanwhile_ == Meanwhile::kWorks && !in_command() ? &goal_.stream()
                                                                              : nullptr};
  const std::optional<Deadline> deadline_;
  Scheduler& scheduler_ = Scheduler::get();
  const tracing::ThreadSlice traced_{goal_.fence() ? "Synchronize" : "WaitForRoom"};
  const WaitScope scope_;
  InterruptClock interrupt_;
  Waiter waiter_;
  bool ask_ = false;
  std::optional<adversary::RequiredCommands> required_;
};

}  // namespace

void wait_for(const Goal& goal) { wait_for_all({&goal, 1}); }

void wait_for_all(std::span<const Goal> goals) {
  for (const Goal& goal : goals) {
    if (adversary::is_active()) engine_gate::close();
    HostWait(goal, goals, HostWait::Meanwhile::kWorks).run();
    if (goal.fence()) note_host_observed(*goal.fence());
  }
}

bool sleep_until(const FenceRef& fence, std::optional<Deadline> deadline) {
  const engine_gate::OpenScope engines_work;
  const Goal goal = Goal::fence(fence);
  return HostWait(goal, {&goal, 1}, HostWait::Meanwhile::kSleeps, deadline).run();
}

void wait_until_drained(StreamImpl& stream) {
  const auto before = clock_if_tracked(stream);
  if (stream.drained()) return note_host_observed(before);
  const FenceRef fence(new Fence(&stream));
  stream.enqueue_internal_record(fence);
  wait_for(Goal::fence(fence));
}

}  // namespace openreg
