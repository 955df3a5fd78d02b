#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <semaphore>

#include "../runtime/stream_helpers.h"
#include "backend/clean_state.h"
#include "backend/stream.h"
#include "base/usable_cores.h"

namespace openreg::backend {
namespace {

constexpr Cost kShort{};
constexpr Cost kFewMilliseconds{.nanoseconds = 2'000'000};
constexpr Cost kLong{.nanoseconds = 100'000'000};
constexpr Cost kShortReproducible{.reproducible = true};
constexpr Cost kLongReproducible{.nanoseconds = 100'000'000, .reproducible = true};

/// Makes the program compute with `n` threads for the duration of a test.
class ComputesWith {
 public:
  explicit ComputesWith(int n) : before_(at::get_num_threads()) {
    at::set_num_threads(n);
    note_wanted_threads();
  }
  ~ComputesWith() { at::set_num_threads(before_); }
  ComputesWith(const ComputesWith&) = delete;
  ComputesWith& operator=(const ComputesWith&) = delete;

 private:
  const int before_;
};

/// The number of threads in a command that an engine runs.
int threads_in_command(Cost expected) {
  int threads = 0;
  std::binary_semaphore ran{0};
  testing::enqueue(
      current_stream(0),
      [&] {
        threads = at::get_num_threads();
        ran.release();
      },
      testing::function_kernel(), expected);
  ran.acquire();  // this thread does not wait for the stream, so it does not run the command
  current_stream(0).synchronize();
  return threads;
}

/// With eight threads for the program, and nothing else that computes.
int most_of_an_engine() { return threads_of_engine(kLong, 8, {usable_cores(), 0, 1}); }

/// The number of threads in a command that this thread runs.
int threads_where_the_host_runs(Cost expected) {
  const Callbacks::Team team = begin_compute(expected, /*engine=*/false);
  const int threads = at::get_num_threads();
  end_compute(team);
  return threads;
}

TEST(ComputeThreads, AnEngineComputesShortCommandsWithOneThread) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_in_command(kShort), 1);
}

TEST(ComputeThreads, ALongCommandTakesTheCoresThatAreFreeAndGivesThemBack) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_in_command(kLong), most_of_an_engine());
  EXPECT_EQ(threads_in_command(kShort), 1);
  EXPECT_EQ(threads_in_command(kLong), most_of_an_engine());
}

TEST(ComputeThreads, ACommandOfAFewMillisecondsLeavesTheHostACore) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_in_command(kFewMilliseconds), std::clamp(usable_cores() - 1, 1, 8));
}

TEST(ComputeThreads, ALongCommandTakesNoMoreThanTheProgramComputesWith) {
  const ComputesWith one(1);
  EXPECT_EQ(threads_in_command(kLong), 1);
}

TEST(ComputeThreads, WhatAnotherLongCommandHasIsNotFree) {
  const ComputesWith eight(8);
  const Callbacks::Team first = begin_compute(kLong, /*engine=*/true);
  EXPECT_EQ(threads_in_command(kLong),
            threads_of_engine(kLong, 8, {usable_cores(), first.threads, 1}));
  end_compute(first);
  EXPECT_EQ(threads_in_command(kLong), most_of_an_engine());
}

TEST(ComputeThreads, AHostDoesNotTakeTheCoresOfALongCommandOfAnEngine) {
  const ComputesWith eight(8);
  const Callbacks::Team engine = begin_compute(kLong, /*engine=*/true);
  EXPECT_EQ(threads_where_the_host_runs(kLong), std::clamp(usable_cores() - engine.threads, 1, 8));
  end_compute(engine);
  EXPECT_EQ(threads_where_the_host_runs(kLong), 8);
}

TEST(ComputeThreads, OfFewCoresAVeryLongCommandTakesThatOfTheHost) {
  EXPECT_EQ(threads_of_engine(kLong, 8, {.cores = 1, .taken = 0, .engines = 1}), 1);
  EXPECT_EQ(threads_of_engine(kLong, 8, {.cores = 2, .taken = 0, .engines = 1}), 2);
  EXPECT_EQ(threads_of_engine(kLong, 8, {.cores = 3, .taken = 0, .engines = 1}), 3);
  EXPECT_EQ(threads_of_engine(kLong, 8, {.cores = 4, .taken = 0, .engines = 1}), 3);
  EXPECT_EQ(threads_of_engine(kLong, 16, {.cores = 16, .taken = 0, .engines = 1}), 15);
}

TEST(ComputeThreads, EnginesShareTheCores) {
  EXPECT_EQ(threads_of_engine(kLong, 16, {.cores = 16, .taken = 0, .engines = 8}), 2);
  EXPECT_EQ(threads_of_engine(kLong, 16, {.cores = 16, .taken = 14, .engines = 8}), 1);
  EXPECT_EQ(threads_of_engine(kLong, 16, {.cores = 16, .taken = 15, .engines = 8}), 1);
  EXPECT_EQ(threads_of_host(16, {.cores = 16, .taken = 0, .engines = 0}), 16);
  EXPECT_EQ(threads_of_host(16, {.cores = 16, .taken = 14, .engines = 7}), 2);
  EXPECT_EQ(threads_of_host(16, {.cores = 16, .taken = 20, .engines = 7}), 1);
}

TEST(ComputeThreads, AReproducibleCommandHasAsManyThreadsWhoeverRunsIt) {
  const ComputesWith eight(8);
  const Callbacks::Team taken = begin_compute(kLong, /*engine=*/true);
  EXPECT_EQ(threads_in_command(kShortReproducible), 1);
  EXPECT_EQ(threads_in_command(kLongReproducible), 8);
  end_compute(taken);
  EXPECT_EQ(threads_where_the_host_runs(kShortReproducible), 1);
  EXPECT_EQ(threads_where_the_host_runs(kLongReproducible), 8);
}

TEST(ComputeThreads, AHostComputesWithItsOwnNumberAfterAReproducibleCommand) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_where_the_host_runs(kShortReproducible), 1);
  EXPECT_EQ(at::get_num_threads(), 8);
}

TEST(ComputeThreads, AHostWithoutATeamComputesWithOneThreadForATurn) {
  const ComputesWith eight(8);
  {
    const OneThreadScope alone;
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(threads_where_the_host_runs(kLong), 8);
  }
  EXPECT_EQ(at::get_num_threads(), 8);
}

}  // namespace
}  // namespace openreg::backend
