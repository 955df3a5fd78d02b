#include "runtime/happens_before.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/callbacks.h"
#include "runtime/event.h"
#include "runtime/graph_exec.h"
#include "runtime/stream.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

class HappensBeforeTest : public ::testing::Test {
 protected:
  void SetUp() override { HappensBefore::track(true); }
  void TearDown() override {
    synchronize_device(0);
    HappensBefore::track(false);
  }

  static HappensBefore& order() { return *HappensBefore::get(); }
  static SubmissionId submit(Stream& stream) {
    const auto submission = order().submit(stream).last();
    enqueue_nothing(stream);
    return submission;
  }
  static bool before(SubmissionId submission, Stream& stream) {
    return order().clock_of(stream).includes(submission);
  }
  static bool seen(SubmissionId submission) { return order().seen_by_hosts().includes(submission); }

  OwnStream own_[3];
  Stream& a = *own_[0];
  Stream& b = *own_[1];
  Stream& c = *own_[2];
};

TEST_F(HappensBeforeTest, AStreamIsInOrderAndStreamsAreNot) {
  const auto first = submit(a);
  EXPECT_TRUE(before(first, a));
  EXPECT_FALSE(before(first, b));
}

TEST_F(HappensBeforeTest, AnEventOrdersWhatCameBeforeItsRecord) {
  const auto early = submit(a);
  Event event;
  event.record(a);
  const auto late = submit(a);
  event.wait(b);
  EXPECT_TRUE(before(early, b));
  EXPECT_FALSE(before(late, b));
  EXPECT_FALSE(before(early, c));
}

TEST_F(HappensBeforeTest, EachRecordCountsForTheWaitsAfterIt) {
  Event event;
  event.record(a);
  event.wait(b);
  const auto between = submit(a);
  event.record(a);
  event.wait(c);
  EXPECT_FALSE(before(between, b));
  EXPECT_TRUE(before(between, c));
}

TEST_F(HappensBeforeTest, OrderIsPassedOn) {
  const auto first = submit(a);
  wait_stream(b, a);
  wait_stream(c, b);
  EXPECT_TRUE(before(first, c));
}

TEST_F(HappensBeforeTest, ThatAnEventHasLongCompletedMakesNoDifference) {
  const auto first = submit(a);
  Event event;
  event.record(a);
  while (!event.is_complete()) std::this_thread::yield();
  EXPECT_FALSE(before(first, b));
  event.wait(b);
  EXPECT_TRUE(before(first, b));
}

TEST_F(HappensBeforeTest, WhatAHostHasSeenCompleteComesBeforeAllLaterWork) {
  const auto first = submit(a);
  wait_stream(b, a);
  const auto second = submit(b);
  const auto third = submit(c);
  b.synchronize();
  EXPECT_TRUE(seen(first));
  EXPECT_TRUE(seen(second));
  EXPECT_FALSE(seen(third));
  EXPECT_TRUE(before(second, c));
}

TEST_F(HappensBeforeTest, QueriesCountIfTheyAreTrue) {
  Event event;
  const auto first = submit(a);
  {
    const Blocker blocker(a);
    event.record(a);
    EXPECT_FALSE(event.query());
    EXPECT_FALSE(a.query());
    EXPECT_FALSE(seen(first));
  }
  while (!event.query()) std::this_thread::yield();
  EXPECT_TRUE(seen(first));
  const auto second = submit(a);
  while (!a.query()) std::this_thread::yield();
  EXPECT_TRUE(seen(second));
}

TEST_F(HappensBeforeTest, WaitsOfHostsCount) {
  Event event(/*timing=*/true);
  const auto first = submit(a);
  event.record(a);
  event.synchronize();
  EXPECT_TRUE(seen(first));

  const auto second = submit(a);
  event.record(a);
  EXPECT_TRUE(event.synchronize_within(std::chrono::seconds(100)));
  EXPECT_TRUE(seen(second));

  const auto third = submit(b);
  synchronize_device(0);
  EXPECT_TRUE(seen(third));

  const auto fourth = order().submit(b).last();
  b.enqueue_and_wait(empty_kernel(), {});
  EXPECT_TRUE(seen(fourth));

  const auto fifth = submit(c);
  drain_device(0);
  EXPECT_TRUE(seen(fifth));
}

TEST_F(HappensBeforeTest, ASynchronisationOfAnIdleStreamCounts) {
  const auto first = submit(a);
  while (!a.idle()) std::this_thread::yield();
  EXPECT_FALSE(seen(first));
  a.synchronize();
  EXPECT_TRUE(seen(first));
}

TEST_F(HappensBeforeTest, ThatAQueueWasFullOrdersNothing) {
  const auto first = submit(a);
  for (int i = 0; i < 10'000; ++i) enqueue_nothing(a);
  EXPECT_FALSE(seen(first));
}

TEST_F(HappensBeforeTest, MarksOfTheLibraryOrderStreams) {
  const auto first = submit(a);
  wait_stream_internal(b, a);
  EXPECT_TRUE(before(first, b));
}

TEST_F(HappensBeforeTest, NothingIsTrackedUnlessItIsAskedFor) {
  HappensBefore::track(false);
  Event event;
  event.record(a);
  event.wait(b);
  EXPECT_EQ(HappensBefore::get(), nullptr);
  HappensBefore::track(true);
  event.wait(c);  // a fence without a clock
  const auto first = submit(a);
  EXPECT_FALSE(before(first, c));
}

TEST_F(HappensBeforeTest, SaysWhenHostsHaveSeenMore) {
  static std::atomic<int> calls{0};
  install_callbacks({.on_host_progress = [] { ++calls; }});
  submit(a);
  a.synchronize();
  const int once = calls;
  EXPECT_GE(once, 1);
  a.synchronize();  // the thread that saw it first may not have called yet
  EXPECT_GT(calls, once);
}

TEST_F(HappensBeforeTest, WaitsOfTheLibraryShowTheProgramNothing) {
  const auto first = submit(a);
  {
    const InternalWaitScope internal;
    drain_device(0);
    a.synchronize();
  }
  EXPECT_FALSE(seen(first));
  drain_device(0);
  EXPECT_TRUE(seen(first));
}

TEST_F(HappensBeforeTest, PollingCounts) {
  Event event;
  const auto first = submit(a);
  event.record(a);
  while (!event.poll()) std::this_thread::yield();
  EXPECT_TRUE(seen(first));
}

// Clocks only grow, whatever threads do.
TEST_F(HappensBeforeTest, ThreadsThatOrderStreamsAtTheSameTimeLoseNothing) {
  OwnStream streams[4];
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        auto& own = *streams[t];
        auto& other = *streams[(t + i) % 4];
        const auto submission = submit(own);
        Event event;
        event.record(own);
        event.wait(other);
        EXPECT_TRUE(before(submission, other));
        if (i % 50 == 0) {
          own.synchronize();
          EXPECT_TRUE(seen(submission));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// Ranks that are threads of this process: a rank's stream waits for a milestone of another one.
class MilestonesTest : public HappensBeforeTest {
 protected:
  void SetUp() override {
    HappensBeforeTest::SetUp();
    ++group_;
    first = rank_of(kHome);
    second = rank_of(kHome + 1);
  }

  static constexpr std::uint32_t kHome = 1'000'000;  // of no real thread

  static std::uint32_t rank_of(std::uint32_t home) { return order().add_milestones(group_, home); }
  static std::vector<SubmissionId> ahead(Stream& stream) {
    return order().ahead(order().clock_of(stream));
  }
  static bool may_lie_between(Stream& stream, std::uint32_t one, std::uint32_t other) {
    return order().may_lie_between(order().clock_of(stream), one, other);
  }

  static inline std::uint64_t group_ = 0;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

TEST_F(MilestonesTest, WhatHappensBeforeAMilestoneHappensBeforeThoseThatWaitForIt) {
  const auto early = submit(a);
  order().reach({first, 1}, a);
  const auto late = submit(a);
  order().wait(b, SubmissionId{first, 1});
  EXPECT_TRUE(before(early, b));
  EXPECT_FALSE(before(late, b));
  EXPECT_FALSE(before(early, c));
  EXPECT_TRUE(ahead(b).empty());
}

TEST_F(MilestonesTest, AWaitMayComeBeforeTheMilestone) {
  order().wait(b, SubmissionId{first, 1});
  wait_stream(c, b);
  Event event;
  event.record(b);
  const auto early = submit(a);
  EXPECT_FALSE(before(early, b));
  EXPECT_EQ(ahead(b).size(), 1);
  order().reach({first, 1}, a);
  EXPECT_TRUE(before(early, b));
  EXPECT_TRUE(before(early, c)) << "which had waited for it before";
  EXPECT_TRUE(ahead(b).empty());
  OwnStream later;
  event.wait(*later);
  EXPECT_TRUE(before(early, *later)) << "the event is older";
}

TEST_F(MilestonesTest, AMilestoneIncludesTheEarlierOnesOfItsSequence) {
  const auto early = submit(a);
  order().reach({first, 1}, a);
  const auto other = submit(b);
  order().reach({first, 2}, b);  // on another stream
  order().wait(c, SubmissionId{first, 2});
  EXPECT_TRUE(before(early, c));
  EXPECT_TRUE(before(other, c));
  OwnStream later;
  order().wait(*later, SubmissionId{first, 1});
  EXPECT_TRUE(before(early, *later));
  EXPECT_FALSE(before(other, *later));
}

TEST_F(MilestonesTest, MilestonesAreFollowedFromOneRankToTheNext) {
  order().wait(b, SubmissionId{first, 1});
  order().reach({second, 1}, b);
  order().wait(c, SubmissionId{second, 1});
  const auto early = submit(a);
  order().reach({first, 1}, a);
  EXPECT_TRUE(before(early, c));
}

TEST_F(MilestonesTest, WhatAHostHasSeenIncludesThem) {
  order().wait(b, SubmissionId{first, 1});
  order().host_observed(order().clock_of(b));
  const auto early = submit(a);
  EXPECT_FALSE(seen(early));
  order().reach({first, 1}, a);
  EXPECT_TRUE(seen(early));
  EXPECT_TRUE(before(early, c));
}

TEST_F(MilestonesTest, AMilestoneThatIsAheadMayOrderWhatThreadsSubmit) {
  order().wait(b, SubmissionId{first, 1});
  EXPECT_TRUE(may_lie_between(b, kHome, kHome + 1));
  EXPECT_TRUE(may_lie_between(b, kHome + 7, kHome + 7)) << "which may work for several ranks";
  EXPECT_FALSE(may_lie_between(b, kHome + 1, kHome + 1)) << "the thread of a rank";
  const auto clock = order().clock_of(b);
  order().wait(a, SubmissionId{second, 1});
  order().reach({first, 1}, a);
  EXPECT_TRUE(order().may_lie_between(clock, kHome, kHome + 1)) << "the next one is ahead";
  order().reach({second, 1}, c);
  EXPECT_FALSE(order().may_lie_between(clock, kHome, kHome + 1));
}

TEST_F(MilestonesTest, AfterTheEndOfASequenceNothingIsAhead) {
  order().wait(b, SubmissionId{first, 3});
  order().end_milestones(first);
  EXPECT_TRUE(ahead(b).empty());
}

TEST_F(MilestonesTest, OfVeryManyMilestonesTheOldOnesIncludeMoreThanTheyShould) {
  std::vector<SubmissionId> submissions;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    submissions.push_back(submit(a));
    order().reach({first, number}, a);
  }
  order().wait(b, SubmissionId{first, 1});
  EXPECT_TRUE(before(submissions.front(), b));
  EXPECT_FALSE(before(submissions.back(), b));
}

}  // namespace
}  // namespace openreg
