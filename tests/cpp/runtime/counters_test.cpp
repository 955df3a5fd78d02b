#include "base/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace openreg {
namespace {

Counter first{"first"};
Counter second{"second"};

TEST(Counters, TheEventsOfAllThreadsAreAdded) {
  first.reset();
  constexpr int kThreads = 8;
  constexpr int kEvents = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < kEvents; ++n) first.add();
      first.add(3);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(first.value(), kThreads * (kEvents + 3));
}

TEST(Counters, EachCountsAndIsResetForItself) {
  first.reset();
  second.reset();
  first.add(2);
  second.add(5);
  first.reset();
  EXPECT_EQ(first.value(), 0U);
  EXPECT_EQ(second.value(), 5U);
  first.add();
  EXPECT_EQ(first.value(), 1U);
}

TEST(Counters, TheSchedulersHaveTheirNames) {
  bool found = false;
  for (const auto* counter : scheduler_counters()) {
    if (counter == &counters::parks) {
      EXPECT_STREQ(counter->name(), "parks");
      found = true;
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace openreg
