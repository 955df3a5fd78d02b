#include "runtime/waiter.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace openreg {
namespace {

TEST(Waiter, AWakeBeforeTheSleepIsNotLost) {
  Waiter waiter;
  EXPECT_FALSE(waiter.woken());
  waiter.wake();
  EXPECT_TRUE(waiter.woken());
  waiter.sleep(std::nullopt);
  waiter.reset();
  EXPECT_FALSE(waiter.woken());
}

TEST(Waiter, AWakeEndsTheSleep) {
  for (int i = 0; i < 200; ++i) {
    Waiter waiter;
    std::thread sleeper([&] {
      while (!waiter.woken()) waiter.sleep(std::nullopt);
    });
    waiter.wake();
    sleeper.join();
  }
}

TEST(Waiter, TheLimitEndsTheSleep) {
  Waiter waiter;
  const auto begin = std::chrono::steady_clock::now();
  waiter.sleep(std::chrono::milliseconds(5));
  EXPECT_FALSE(waiter.woken());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(4));
}

TEST(Waiter, ASignalEndsTheSleep) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;  // has no effect on a sleep with a limit
  struct sigaction before;
  sigaction(SIGUSR1, &action, &before);
  Waiter waiter;
  std::atomic<bool> returned{false};
  std::thread sleeper([&] {
    waiter.sleep(std::chrono::hours(1));
    returned = true;
  });
  while (!returned) {
    pthread_kill(sleeper.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_FALSE(waiter.woken());
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace openreg
