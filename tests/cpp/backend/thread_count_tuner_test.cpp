#include "backend/thread_count_tuner.h"

#include <gtest/gtest.h>

#include <chrono>

namespace openreg::backend {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

/// How long a host launches, and then waits.
struct Step {
  microseconds away, wait;
};

/// A program whose steps take other times with a team than without one. Its clock is simulated.
class Program {
 public:
  explicit Program(Step alone, Step with_team, nanoseconds launched = microseconds(600))
      : launched_(launched), steps_{alone, with_team} {}

  void change(Step alone, Step with_team, nanoseconds launched) {
    launched_ = launched;
    steps_[0] = alone;
    steps_[1] = with_team;
  }
  /// Each nth step takes ten times as long.
  void disturb_each(int nth) { disturbed_ = nth; }

  /// Returns the share of the time in which the steps had a team.
  double run(nanoseconds duration) {
    nanoseconds time{}, with_team{};
    while (time < duration) {
      const nanoseconds taken = step();
      time += taken;
      if (team_) with_team += taken;
    }
    return static_cast<double>(with_team.count()) / static_cast<double>(time.count());
  }

 private:
  nanoseconds step() {
    const bool is_disturbed = disturbed_ != 0 && ++count_ % disturbed_ == 0;
    before_.away = steps_[team_].away;
    before_.launched = launched_;
    // The engine did nothing beside the host: nothing is known from it.
    team_ = tuner_.takes_team(launched_, before_, /*threads=*/2, /*cores=*/2);
    const nanoseconds wait = steps_[team_].wait * (is_disturbed ? 10 : 1);
    before_.last_wait = wait;
    ++before_.waits.count;
    before_.waits.time += before_.away + wait;
    before_.waits.launched += launched_;
    return before_.away + wait;
  }

  ThreadCountTuner tuner_;
  Callbacks::SinceLastWait before_;
  nanoseconds launched_;
  Step steps_[2];
  bool team_ = true;
  int disturbed_ = 0;
  int count_ = 0;
};

// Measured on two cores: the gradients of a batch normalisation, and a training step of an MLP.
constexpr Step kNormAlone{microseconds(105), microseconds(190)};
constexpr Step kNormWithTeam{microseconds(55), microseconds(105)};
constexpr Step kMlpAlone{microseconds(190), microseconds(90)};
constexpr Step kMlpWithTeam{microseconds(170), microseconds(155)};

TEST(ThreadCountTuner, AHostThatHasNotWaitedBeforeTakesItsTeam) {
  EXPECT_TRUE(ThreadCountTuner().takes_team({}, {}, 2, 2));
}

TEST(ThreadCountTuner, ATeamOfOneIsNone) {
  EXPECT_FALSE(ThreadCountTuner().takes_team({}, {}, 1, 2));
}

TEST(ThreadCountTuner, AWaitMuchLongerThanTheLaunchesBeforeItHasATeam) {
  Program program({microseconds(20), milliseconds(2)}, {microseconds(20), milliseconds(1)},
                  milliseconds(2));
  EXPECT_GT(program.run(seconds(1)), 0.99);  // all but the first one
}

TEST(ThreadCountTuner, AWaitMuchShorterThanTheLaunchesBeforeItHasNone) {
  Program program({microseconds(900), microseconds(50)}, {microseconds(900), microseconds(50)});
  EXPECT_LT(program.run(seconds(1)), 0.01);  // the first one
}

TEST(ThreadCountTuner, MuchThatIsLeftAfterAnEngineHasShownItsPaceHasATeam) {
  const milliseconds left(9), launched(10);
  EXPECT_TRUE(
      ThreadCountTuner().takes_team(left, {milliseconds(1), launched, milliseconds(0), {}}, 2, 2));
  EXPECT_FALSE(
      ThreadCountTuner().takes_team({}, {milliseconds(1), launched, milliseconds(0), {}}, 2, 2));
}

TEST(ThreadCountTuner, ATeamSpinsForMillisecondsOnly) {
  EXPECT_TRUE(ThreadCountTuner().takes_team(
      milliseconds(100), {seconds(1), milliseconds(100), milliseconds(100), {}}, 2, 2));
}

TEST(ThreadCountTuner, OnManyCoresASpinningThreadCostsLittle) {
  const Callbacks::SinceLastWait before{microseconds(100), microseconds(600), microseconds(60), {}};
  EXPECT_TRUE(ThreadCountTuner().takes_team(microseconds(600), before, 16, 16));
}

TEST(ThreadCountTuner, InDoubtTheFasterIsFoundByMeasuring) {
  Program norm(kNormAlone, kNormWithTeam);
  norm.run(milliseconds(200));
  EXPECT_GT(norm.run(seconds(10)), 0.97);
  Program mlp(kMlpAlone, kMlpWithTeam);
  mlp.run(milliseconds(200));
  EXPECT_LT(mlp.run(seconds(10)), 0.03);
}

TEST(ThreadCountTuner, WhatOtherProgramsDisturbIsNotCompared) {
  Program norm(kNormAlone, kNormWithTeam);
  norm.disturb_each(40);
  norm.run(milliseconds(200));
  EXPECT_GT(norm.run(seconds(10)), 0.95);
  Program mlp(kMlpAlone, kMlpWithTeam);
  mlp.disturb_each(40);
  mlp.run(milliseconds(200));
  EXPECT_LT(mlp.run(seconds(10)), 0.05);
}

TEST(ThreadCountTuner, TheSlowerIsTriedAgain) {
  Program program(kMlpAlone, kMlpWithTeam);
  program.run(seconds(20));
  program.change(kNormAlone, kNormWithTeam, microseconds(600));
  program.run(seconds(5));
  EXPECT_GT(program.run(seconds(1)), 0.9);
}

TEST(ThreadCountTuner, OtherWorkIsMeasuredSoon) {
  Program program(kMlpAlone, kMlpWithTeam);
  program.run(seconds(20));
  program.change(kNormAlone, kNormWithTeam, microseconds(200));
  program.run(milliseconds(50));
  EXPECT_GT(program.run(seconds(1)), 0.9);
}

TEST(ThreadCountTuner, ATrialOfAMuchSlowerChoiceIsShort) {
  // A training step of a small MLP beside two busy programs, on two cores.
  Program program({milliseconds(2), milliseconds(2)}, {milliseconds(2), milliseconds(21)});
  EXPECT_LT(program.run(seconds(10)), 0.08);
}

TEST(ThreadCountTuner, LongStepsAreMeasuredByFew) {
  Program program({milliseconds(50), milliseconds(100)}, {milliseconds(50), milliseconds(60)},
                  milliseconds(200));
  program.run(seconds(10));
  EXPECT_GT(program.run(seconds(60)), 0.85);
}

}  // namespace
}  // namespace openreg::backend
