#include "memory/backoff_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace openreg::memory {
namespace {

TEST(BackoffLock, OneThreadAtATimeHasIt) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  BackoffLock lock;
  // If two threads have the lock, an increment is lost, or the thread sanitizer reports it.
  long count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(BackoffLock, AThreadThatWaitsGetsItAfterALongTime) {
  BackoffLock lock;
  bool released = false;
  lock.lock();
  std::thread other([&] {
    const std::lock_guard guard(lock);
    EXPECT_TRUE(released);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other thread sleeps by now
  released = true;
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace openreg::memory
