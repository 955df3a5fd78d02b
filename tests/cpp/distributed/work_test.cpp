#include "distributed/work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "fake_gloo.h"
#include "runtime/callbacks.h"
#include "runtime/stream.h"

namespace openreg::distributed {
namespace {

using namespace testing;

/// Called by a host that has gone to sleep in a wait.
std::atomic<std::function<void()>*> g_asleep{nullptr};

TEST(WorkOccl, AbortChangesNothingInAWorkThatHasSucceeded) {
  const Group group;
  const auto work = group.all_reduce(ones());
  group.gloo->take().end();
  EXPECT_TRUE(work->wait(std::chrono::seconds(60)));
  work->abort();
  EXPECT_TRUE(work->isSuccess());
  EXPECT_EQ(work->exception(), nullptr);
  synchronize_device(0);
}

TEST(WorkOccl, ATimeoutLongerThanTheClockCountsIsNoTimeout) {
  const Group group;
  const auto work = group.all_reduce(ones());
  std::function<void()> end = [call = group.gloo->take()]() mutable {
    g_asleep = nullptr;
    call.end();
  };
  g_asleep = &end;
  install_callbacks({.check_interrupt = [] {
    if (auto* const call = g_asleep.load()) (*call)();
  }});
  EXPECT_TRUE(work->wait(std::chrono::milliseconds::max()));
  EXPECT_TRUE(work->isSuccess());
  EXPECT_EQ(g_asleep, nullptr);
  synchronize_device(0);
}

}  // namespace
}  // namespace openreg::distributed
