#include "runtime/range_allocator.h"

#include <gtest/gtest.h>

namespace openreg {
namespace {

TEST(RangeAllocator, TakesTheLowestRangeThatFits) {
  RangeAllocator ranges(100, 50);
  EXPECT_EQ(ranges.take(10), 100);
  EXPECT_EQ(ranges.take(20), 110);
  EXPECT_EQ(ranges.take(10), 130);
  ranges.give_back(100);
  EXPECT_EQ(ranges.take(15), 0);
  EXPECT_EQ(ranges.take(4), 100);
  EXPECT_EQ(ranges.take(6), 104);
  EXPECT_EQ(ranges.take(10), 140);
  EXPECT_EQ(ranges.take(1), 0);
}

TEST(RangeAllocator, KnowsTakenRangesByTheirBeginning) {
  RangeAllocator ranges(100, 50);
  ASSERT_EQ(ranges.take(10), 100);
  EXPECT_EQ(ranges.size_of(100), 10);
  EXPECT_EQ(ranges.size_of(101), 0);
  EXPECT_EQ(ranges.size_of(110), 0);
  ranges.give_back(100);
  EXPECT_EQ(ranges.size_of(100), 0);
}

TEST(RangeAllocator, NeighboursMergeInWhicheverOrderTheyAreFreed) {
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    RangeAllocator ranges(100, 30);
    for (int i = 0; i < 3; ++i) ASSERT_NE(ranges.take(10), 0);
    for (const int i : order) ranges.give_back(static_cast<std::uintptr_t>(100 + 10 * i));
    EXPECT_EQ(ranges.take(30), 100);
  }
}

}  // namespace
}  // namespace openreg
