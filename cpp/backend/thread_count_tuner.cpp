#include "backend/thread_count_tuner.h"

#include <algorithm>

#include "runtime/host_expectation.h"

namespace openreg::backend {

// Note [Teams of hosts]
//
// After a parallel region the threads of a team spin for some milliseconds, in case another one
// follows. A host that has waited then continues launching, and an engine computes: with the team's
// threads there are more of them than cores, and each gets less time. So a team gains time in the
// wait and costs time until the next one. Both can be estimated, but not well: how much an engine
// would have done beside the host, what each hand-over to a delayed thread costs (autograd's, an
// engine's), and what a kernel gains from a second thread. Rules that weighed the estimates took a
// team that made a small training step twice as slow, or left one out that made it twice as fast.
// And the choice maintains itself: beside a spinning team an engine does nothing, so much is left
// for the next wait.
//
// So the estimates decide only what is clear: a wait that is several times as long as the launches
// before it, or much shorter. Otherwise the faster choice is measured: waits come in a rhythm, such
// as the steps of a training loop, and the time of many of them, divided by the expected time of
// their commands, can be compared. The host keeps the faster choice and tries the other one from
// time to time, more and more rarely while it stays the slower one, and soon after the amount of
// work in each wait has changed. All waits in doubt share the choice, because the threads of a team
// that one of them takes spin through the others. (A team could be ended after a wait, as an
// engine's is after a command; but making a new one takes a tenth of a millisecond.)

namespace {

using Duration = std::chrono::duration<double, std::nano>;

constexpr int kNothingDone = 16;  // an engine that did less than a 16th did nothing
constexpr double kClear = 8;      // gain and cost differ by this factor

constexpr std::uint64_t kWarmUpWaits = 2;
constexpr std::uint64_t kWaitsOfPart = 8;
// Of the parts of a trial the fastest counts: other programs disturb some of them. But a trial ends
// if a part, even a short one, takes much longer than the other choice: beside busy programs a step
// with a team can take five times as long.
constexpr int kPartsOfTrial = 3;
constexpr double kMuchSlower = 2;
constexpr std::uint64_t kWaitsOfSlowPart = 4;
constexpr int kPartsBetweenTrials = 16;
constexpr int kMostPartsBetweenTrials = 1024;
constexpr double kOtherWork = 1.6;  // the factor by which the work in each wait has changed
constexpr double kFaster = 0.97;    // than the choice before

// What a team gains in this wait, divided by what its spinning threads cost until the next one.
double worth_of_team(std::chrono::nanoseconds left, const Callbacks::SinceLastWait& before,
                     bool had_team, int threads, int cores) noexcept {
  const Duration away = before.away;
  const Duration launched = before.launched;
  const Duration done = launched - left;
  const Duration alone = before.last_wait * (had_team ? threads : 1);
  Duration rest = std::min<Duration>(alone, 2 * left);
  if (done > launched / kNothingDone)
    rest = std::max(rest, std::min<Duration>(left, away * (left / done)));
  const double too_many = std::max(0.0, (threads + 1.0) / cores - 1);  // of a core
  const Duration cost = std::min<Duration>(away, thresholds::kSpinOfTeams) * too_many;
  return rest * (1 - 1.0 / threads) / std::max(cost, Duration(1));
}

}  // namespace

bool ThreadCountTuner::takes_team(std::chrono::nanoseconds left,
                                  const Callbacks::SinceLastWait& before, int threads,
                                  int cores) noexcept {
  if (threads == 1) return false;
  if (before.away.count() == 0) return true;  // the first wait
  had_team_ = choose(worth_of_team(left, before, had_team_, threads, cores), before.waits);
  return had_team_;
}

bool ThreadCountTuner::choose(double worth, const Waits& so_far) noexcept {
  if (worth >= kClear) return true;
  if (worth <= 1 / kClear) return false;
  measure(so_far);
  return team_;
}

void ThreadCountTuner::measure(const Waits& so_far) noexcept {
  const auto waits = so_far.count - begin_.count;
  const auto time = so_far.time - begin_.time;
  const Duration launched = so_far.launched - begin_.launched;
  if (!is_warm_) {
    if (waits < kWarmUpWaits || time < thresholds::kWarmUp) return;
    is_warm_ = true;
    begin_ = so_far;
    return;
  }
  if (launched.count() <= 0) return;
  const double pace = time / launched;
  const bool whole = waits >= kWaitsOfPart && time >= thresholds::kPart;
  if (!whole && !(waits >= kWaitsOfSlowPart && time >= thresholds::kWarmUp && is_much_slower(pace)))
    return;
  begin_ = so_far;
  note(launched.count() / static_cast<double>(waits), pace);
}

bool ThreadCountTuner::is_much_slower(double pace) const noexcept {
  return in_trial_ && pace > kMuchSlower * pace_[team_ ? 0 : 1];
}

void ThreadCountTuner::note(double work, double pace) noexcept {
  const auto [less, more] = std::minmax(work, work_);
  const bool other = more > less * kOtherWork;
  work_ = work;
  if (other) {
    in_trial_ = false;
    parts_ = 0;
    parts_to_keep_ = kPartsOfTrial;
  }
  double& fastest = pace_[team_ ? 1 : 0];
  fastest = parts_ % kPartsOfTrial == 0 ? pace : std::min(fastest, pace);
  ++parts_;
  if (is_much_slower(pace)) return end_trial();
  if (parts_ % kPartsOfTrial != 0) return;
  if (in_trial_) return end_trial();
  if (parts_ < parts_to_keep_) return;
  in_trial_ = true;
  switch_to(!team_);
}

void ThreadCountTuner::end_trial() noexcept {
  const double pace = pace_[team_ ? 1 : 0];
  const bool faster = pace < pace_[team_ ? 0 : 1] * kFaster;
  const int times = is_much_slower(pace) ? 4 : 2;
  parts_to_keep_ =
      faster ? kPartsBetweenTrials
             : std::clamp(parts_to_keep_ * times, kPartsBetweenTrials, kMostPartsBetweenTrials);
  in_trial_ = false;
  switch_to(faster ? team_ : !team_);
}

void ThreadCountTuner::switch_to(bool team) noexcept {
  team_ = team;
  parts_ = 0;
  is_warm_ = false;
}

}  // namespace openreg::backend
