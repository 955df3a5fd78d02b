#include "address_space/range_allocator.h"

#include <gtest/gtest.h>

namespace openreg {
namespace {

constexpr std::size_t kNoRoom = 1000;  // more than any half

TEST(RangeAllocator, WithoutRoomItTakesTheLowestRangeThatFits) {
  RangeAllocator ranges(100, 50, 1);
  EXPECT_EQ(ranges.take(10, kNoRoom), 100);
  EXPECT_EQ(ranges.take(20, kNoRoom), 110);
  EXPECT_EQ(ranges.take(10, kNoRoom), 130);
  ranges.free(100, 10);
  EXPECT_EQ(ranges.take(15, kNoRoom), 0);
  EXPECT_EQ(ranges.take(4, kNoRoom), 100);
  EXPECT_EQ(ranges.take(6, kNoRoom), 104);
  EXPECT_EQ(ranges.take(10, kNoRoom), 140);
  EXPECT_EQ(ranges.take(1, kNoRoom), 0);
}

TEST(RangeAllocator, RangesLieApartAsLongAsBothHalvesHaveRoom) {
  RangeAllocator ranges(1000, 800, 10);
  EXPECT_EQ(ranges.take(10, 100), 1400);
  EXPECT_EQ(ranges.take(10, 100), 1200);
  EXPECT_EQ(ranges.take(10, 100), 1600) << "the longest: 390 bytes from 1410 on, in tens";
  EXPECT_EQ(ranges.take(10, 100), 1100);
  EXPECT_EQ(ranges.take(10, 100), 1000) << "no half has 100 bytes any more";
}

TEST(RangeAllocator, ARangeIsTakenWhereItIsWantedOrNotAtAll) {
  RangeAllocator ranges(100, 50, 1);
  EXPECT_TRUE(ranges.take_at(120, 10));
  EXPECT_FALSE(ranges.take_at(115, 10));
  EXPECT_FALSE(ranges.take_at(129, 1));
  EXPECT_FALSE(ranges.take_at(99, 1));
  EXPECT_FALSE(ranges.take_at(145, 10));
  EXPECT_TRUE(ranges.take_at(130, 20));
  EXPECT_FALSE(ranges.take_at(150, 1));
  EXPECT_TRUE(ranges.take_at(100, 20));
  EXPECT_EQ(ranges.take(1, kNoRoom), 0);
}

TEST(RangeAllocator, UnitsAreTakenUpToAQuarterOfTheLongestRange) {
  RangeAllocator ranges(100, 120, 1);
  const auto all = ranges.take_up_to(30, 10);
  EXPECT_EQ(all.begin, 100);
  EXPECT_EQ(all.bytes, 30);
  const auto fewer = ranges.take_up_to(30, 10);  // of 90
  EXPECT_EQ(fewer.begin, 130);
  EXPECT_EQ(fewer.bytes, 20);
  for (const std::size_t left : {70, 60, 50, 40})
    EXPECT_EQ(ranges.take_up_to(30, 10).bytes, 10U) << left;
  EXPECT_EQ(ranges.take_up_to(30, 10).bytes, 0U) << "a quarter of 30 is no unit";
}

TEST(RangeAllocator, AnyPartOfWhatIsTakenCanBeGivenBack) {
  RangeAllocator ranges(100, 50, 1);
  ASSERT_EQ(ranges.take(50, kNoRoom), 100);
  EXPECT_TRUE(ranges.is_taken(100, 50));
  ranges.free(110, 10);
  EXPECT_FALSE(ranges.is_taken(100, 50));
  EXPECT_TRUE(ranges.is_taken(100, 10));
  EXPECT_FALSE(ranges.is_taken(100, 11));
  EXPECT_FALSE(ranges.is_taken(119, 2));
  EXPECT_TRUE(ranges.is_taken(120, 30));
  EXPECT_FALSE(ranges.is_taken(120, 31));
  EXPECT_FALSE(ranges.is_taken(99, 2));
  EXPECT_FALSE(ranges.is_taken(120, 0));
  EXPECT_EQ(ranges.take(10, kNoRoom), 110);
}

TEST(RangeAllocator, NeighboursMergeInWhicheverOrderTheyAreFreed) {
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    RangeAllocator ranges(100, 30, 1);
    for (int i = 0; i < 3; ++i) ASSERT_NE(ranges.take(10, kNoRoom), 0);
    for (const int i : order) ranges.free(static_cast<std::uintptr_t>(100 + 10 * i), 10);
    EXPECT_EQ(ranges.take(30, kNoRoom), 100);
  }
}

}  // namespace
}  // namespace openreg
