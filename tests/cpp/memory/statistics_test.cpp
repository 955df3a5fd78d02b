#include "memory/statistics.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <stdexcept>

namespace openreg::memory {

void PrintTo(const Stat& counter, std::ostream* out) {
  *out << "{current " << counter.current << ", peak " << counter.peak << ", allocated "
       << counter.allocated << ", freed " << counter.freed << "}";
}

namespace {

constexpr auto kSmall = SizeClass::kSmall;
constexpr auto kLarge = SizeClass::kLarge;

// {current, peak, allocated, freed}
TEST(ClassStat, ANewOneIsZero) {
  const ClassStat counter;
  EXPECT_EQ(counter.of(kSmall), Stat{});
  EXPECT_EQ(counter.of(kLarge), Stat{});
  EXPECT_EQ(counter.all(), Stat{});
  EXPECT_EQ(counter.current(), 0);
}

TEST(ClassStat, ClassesAreCountedApartAndTogether) {
  ClassStat counter;
  counter.add(kSmall, 5);
  counter.add(kLarge, 100);
  counter.remove(kSmall, 2);
  counter.add(kLarge, 10);
  EXPECT_EQ(counter.of(kSmall), (Stat{3, 5, 5, 2}));
  EXPECT_EQ(counter.of(kLarge), (Stat{110, 110, 110, 0}));
  EXPECT_EQ(counter.all(), (Stat{113, 113, 115, 2}));
  EXPECT_EQ(counter.current(), 113);
}

TEST(ClassStat, ThePeakOfTheSumIsNotTheSumOfThePeaks) {
  ClassStat counter;
  counter.add(kSmall, 10);
  counter.remove(kSmall, 10);
  counter.add(kLarge, 20);
  EXPECT_EQ(counter.of(kSmall).peak, 10);
  EXPECT_EQ(counter.of(kLarge).peak, 20);
  EXPECT_EQ(counter.all().peak, 20);
}

TEST(ClassStat, AChangeOfEitherSignCountsOnOneSide) {
  ClassStat counter;
  counter.change(kSmall, 7);
  counter.change(kSmall, -3);
  counter.change(kSmall, 0);
  EXPECT_EQ(counter.of(kSmall), (Stat{4, 7, 7, 3}));
}

TEST(ClassStat, AResetOfThePeakLeavesTheSums) {
  ClassStat counter;
  counter.add(kSmall, 10);
  counter.remove(kSmall, 6);
  counter.add(kLarge, 1);
  counter.reset_peak();
  EXPECT_EQ(counter.of(kSmall), (Stat{4, 4, 10, 6}));
  EXPECT_EQ(counter.all(), (Stat{5, 5, 11, 6}));
  counter.add(kSmall, 2);
  counter.remove(kSmall, 1);
  EXPECT_EQ(counter.of(kSmall), (Stat{5, 6, 12, 7}));
  EXPECT_EQ(counter.all(), (Stat{6, 7, 13, 7}));
}

TEST(ClassStat, AResetOfTheSumsLeavesThePeak) {
  ClassStat counter;
  counter.add(kSmall, 10);
  counter.remove(kSmall, 6);
  counter.add(kLarge, 3);
  counter.reset_accumulated();
  EXPECT_EQ(counter.of(kSmall), (Stat{4, 10, 0, 0}));
  EXPECT_EQ(counter.all(), (Stat{7, 10, 0, 0}));
  counter.remove(kSmall, 4);
  counter.add(kLarge, 5);
  EXPECT_EQ(counter.of(kSmall), (Stat{0, 10, 0, 4}));
  EXPECT_EQ(counter.of(kLarge), (Stat{8, 8, 5, 0}));
  EXPECT_EQ(counter.all(), (Stat{8, 10, 5, 4}));
}

// Each of these a reset must reach.
constexpr ClassStat Statistics::*kCounters[] = {
    &Statistics::allocation,           &Statistics::allocated_bytes,
    &Statistics::requested_bytes,      &Statistics::active,
    &Statistics::active_bytes,         &Statistics::inactive_split,
    &Statistics::inactive_split_bytes, &Statistics::segment,
    &Statistics::reserved_bytes,       &Statistics::oversize_allocations,
    &Statistics::oversize_segments};

void add_to_each(Statistics& statistics) {
  for (const auto counter : kCounters) {
    (statistics.*counter).add(kLarge, 3);
    (statistics.*counter).remove(kLarge, 2);
  }
}

void expect_of_each(const Statistics& statistics, const Stat& all) {
  for (const auto counter : kCounters) EXPECT_EQ((statistics.*counter).all(), all);
}

TEST(Statistics, AResetOfPeaksReachesAllCountersAndNothingElse) {
  Statistics statistics;
  add_to_each(statistics);
  statistics.device_maps = 1;
  statistics.retries = 2;
  statistics.reset_peak();
  expect_of_each(statistics, {1, 1, 3, 2});
  EXPECT_EQ(statistics.device_maps, 1);
  EXPECT_EQ(statistics.retries, 2);
}

TEST(Statistics, AResetOfSumsReachesAllCountersAndEvents) {
  Statistics statistics;
  add_to_each(statistics);
  statistics.device_maps = 1;
  statistics.device_unmaps = 2;
  statistics.retries = 3;
  statistics.out_of_memory = 4;
  statistics.synchronizations = 5;
  statistics.reset_accumulated();
  expect_of_each(statistics, {1, 3, 0, 0});
  EXPECT_EQ(statistics.device_maps, 0);
  EXPECT_EQ(statistics.device_unmaps, 0);
  EXPECT_EQ(statistics.retries, 0);
  EXPECT_EQ(statistics.out_of_memory, 0);
  EXPECT_EQ(statistics.synchronizations, 0);
}

TEST(Statistics, ScopesHavePeaksOfTheirOwn) {
  Statistics statistics;
  const auto move = [&](std::int64_t allocated, std::int64_t reserved) {
    statistics.allocated_bytes.change(kSmall, allocated);
    statistics.reserved_bytes.change(kLarge, reserved);
  };
  move(100, 200);
  move(-90, 0);
  const int outer = statistics.begin_scope();
  EXPECT_EQ(statistics.peak_of_scope(outer), (Peak{10, 200}));
  move(20, 50);
  move(-20, -50);
  const int inner = statistics.begin_scope();
  move(5, 0);
  statistics.reset_peak();
  move(-5, 0);
  EXPECT_EQ(statistics.peak_of_scope(outer), (Peak{30, 250}));
  EXPECT_EQ(statistics.end_scope(outer), (Peak{30, 250}));
  move(7, 0);
  EXPECT_EQ(statistics.end_scope(inner), (Peak{17, 200}));
  EXPECT_THROW(statistics.end_scope(inner), std::out_of_range);
}

TEST(Statistics, ScopesLeaveTheOtherPeaks) {
  Statistics statistics;
  statistics.allocated_bytes.add(kSmall, 50);
  statistics.allocated_bytes.add(kLarge, 50);
  statistics.allocated_bytes.remove(kLarge, 50);
  const int scope = statistics.begin_scope();
  EXPECT_EQ(statistics.allocated_bytes.all().peak, 100);
  EXPECT_EQ(statistics.allocated_bytes.of(kLarge).peak, 50);
  statistics.allocated_bytes.add(kSmall, 20);
  EXPECT_EQ(statistics.end_scope(scope).allocated, 70);
  EXPECT_EQ(statistics.allocated_bytes.all().peak, 100);
  statistics.allocated_bytes.add(kSmall, 100);
  EXPECT_EQ(statistics.allocated_bytes.all().peak, 170);
  statistics.allocated_bytes.remove(kSmall, 100);
  statistics.reset_peak();
  EXPECT_EQ(statistics.allocated_bytes.all().peak, 70);
}

}  // namespace
}  // namespace openreg::memory
