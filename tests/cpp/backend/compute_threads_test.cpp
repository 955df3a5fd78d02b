#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <semaphore>
#include <thread>

#include "backend/clean_state.h"
#include "backend/stream.h"
#include "support.h"

namespace openreg::backend {
namespace {

constexpr Work kLong = 100'000;

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// The program computes with `n` threads for the length of a test.
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

/// What a command sees that an engine runs.
int threads_in_command(Work expected) {
  int threads = 0;
  std::binary_semaphore ran{0};
  testing::submit(
      current_stream(0),
      [&] {
        threads = at::get_num_threads();
        ran.release();
      },
      expected);
  ran.acquire();  // this thread does not wait for the stream, so it does not run the command
  current_stream(0).synchronize();
  return threads;
}

TEST(ComputeThreads, AnEngineComputesShortCommandsWithOneThread) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_in_command(0), 1);
}

TEST(ComputeThreads, ALongCommandTakesTheCoresThatAreFreeAndGivesThemBack) {
  const ComputesWith eight(8);
  EXPECT_EQ(threads_in_command(kLong), std::min(8, cores()));
  EXPECT_EQ(threads_in_command(0), 1);
  EXPECT_EQ(threads_in_command(kLong), std::min(8, cores()));
}

TEST(ComputeThreads, ALongCommandTakesNoMoreThanTheProgramComputesWith) {
  const ComputesWith one(1);
  EXPECT_EQ(threads_in_command(kLong), 1);
}

TEST(ComputeThreads, WhatAnotherLongCommandHasIsNotFree) {
  const ComputesWith eight(8);
  const int first = begin_long_work();
  EXPECT_EQ(threads_in_command(kLong), std::max(1, std::min(8, cores() - first)));
  end_long_work(first);
  EXPECT_EQ(threads_in_command(kLong), std::min(8, cores()));
}

}  // namespace
}  // namespace openreg::backend
