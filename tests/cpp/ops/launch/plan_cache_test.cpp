#include "ops/launch/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "backend/launch_counters.h"

namespace openreg::ops {
namespace {

const int kCaller = 0;

SignatureView signature_of(const std::uint64_t& word) {
  return make_signature(&kCaller, {&word, 1});
}

CallPlan plan_with(std::uint64_t nanoseconds) {
  return {.cost = {.nanoseconds = static_cast<std::uint32_t>(nanoseconds)}};
}

class PlanCacheTest : public ::testing::Test {
 protected:
  PlanCacheTest() { PlanCache::clear(); }
  ~PlanCacheTest() override { PlanCache::clear(); }
};

TEST_F(PlanCacheTest, FindsWhatWasInserted) {
  const std::uint64_t word = 7;
  EXPECT_FALSE(PlanCache::find(signature_of(word)));
  const auto made = PlanCache::insert(signature_of(word), {.waits = true});
  const auto found = PlanCache::find(signature_of(word));
  ASSERT_TRUE(found);
  EXPECT_EQ(&*found, &*made);
  EXPECT_TRUE(found->waits);
}

TEST_F(PlanCacheTest, KeepsTheFirstOfTwoPlans) {
  const std::uint64_t word = 7;
  const auto first = PlanCache::insert(signature_of(word), {.waits = true});
  EXPECT_EQ(&*PlanCache::insert(signature_of(word), {}), &*first);
}

TEST_F(PlanCacheTest, ACollisionOfHashesIsAnotherPlan) {
  const std::uint64_t word = 7;
  const std::uint64_t other = 8;
  const auto made = PlanCache::insert(signature_of(word), {});
  auto forged = signature_of(other);
  forged.hash = signature_of(word).hash;
  EXPECT_FALSE(PlanCache::find(forged));
  EXPECT_NE(&*PlanCache::insert(forged, {}), &*made);
  EXPECT_EQ(&*PlanCache::find(signature_of(word)), &*made);
}

TEST_F(PlanCacheTest, IsBoundedAndDropsWhatHasNotBeenUsedForLongest) {
  const std::uint64_t used = 0;
  PlanCache::insert(signature_of(used), {});
  for (std::uint64_t word = 1; word <= 2 * PlanCache::kMost; ++word) {
    PlanCache::insert(signature_of(word), {});
    ASSERT_TRUE(PlanCache::find(signature_of(used))) << "after " << word;
    ASSERT_LE(PlanCache::size(), PlanCache::kMost);
  }
  const std::uint64_t unused = 1;
  EXPECT_FALSE(PlanCache::find(signature_of(unused)));
}

TEST_F(PlanCacheTest, APlanInUseStaysWhateverIsPlannedMeanwhile) {
  const std::uint64_t word = 7;
  PlanCache::insert(signature_of(word), plan_with(42));
  const auto used = PlanCache::find(signature_of(word));
  for (std::uint64_t other = 100; other < 100 + 2 * PlanCache::kMost; ++other) {
    PlanCache::insert(signature_of(other), {});
    PlanCache::find(signature_of(other));
  }
  PlanCache::clear();
  EXPECT_FALSE(PlanCache::find(signature_of(word)));
  EXPECT_EQ(used->cost.nanoseconds, 42);
}

TEST_F(PlanCacheTest, ClearedPlansAreForgottenByEachThread) {
  const std::uint64_t word = 7;
  PlanCache::insert(signature_of(word), {});
  ASSERT_TRUE(PlanCache::find(signature_of(word)));
  std::thread([] { PlanCache::clear(); }).join();
  EXPECT_FALSE(PlanCache::find(signature_of(word)));
}

TEST_F(PlanCacheTest, HitsAndPlansAreCounted) {
  const auto hits = backend::counters::plan_hits.value();
  const auto plans = backend::counters::plans_made.value();
  const std::uint64_t word = 7;
  PlanCache::find(signature_of(word));
  PlanCache::insert(signature_of(word), {});
  PlanCache::find(signature_of(word));
  std::thread([&] { PlanCache::find(signature_of(word)); }).join();
  EXPECT_EQ(backend::counters::plan_hits.value() - hits, 2);
  EXPECT_EQ(backend::counters::plans_made.value() - plans, 1);
}

TEST_F(PlanCacheTest, ThreadsAgreeOnPlansWhileOthersAreDropped) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 20000; ++i) {
        const std::uint64_t word = (i * (thread + 1)) % 30000;
        auto plan = PlanCache::find(signature_of(word));
        if (!plan) plan = PlanCache::insert(signature_of(word), plan_with(word));
        if (plan->cost.nanoseconds != word) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace openreg::ops
