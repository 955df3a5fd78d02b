#include "memory/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "seed.h"

namespace openreg::memory {
namespace {

using Numbers = std::vector<std::int64_t>;

std::byte* at(std::size_t offset) { return reinterpret_cast<std::byte*>(0x10000 + offset); }

Footprint strided(std::size_t offset, std::size_t itemsize, const Numbers& sizes,
                  const Numbers& strides) {
  return {at(offset), itemsize, sizes, strides};
}

// Every byte, one by one.
std::set<std::uintptr_t> bytes_of(std::size_t offset, std::size_t itemsize, const Numbers& sizes,
                                  const Numbers& strides) {
  std::set<std::uintptr_t> bytes;
  Numbers index(sizes.size(), 0);
  if (std::ranges::count(sizes, 0) != 0) return bytes;
  while (true) {
    std::size_t element = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      element += static_cast<std::size_t>(index[i] * strides[i]);
    for (std::size_t i = 0; i < itemsize; ++i)
      bytes.insert(reinterpret_cast<std::uintptr_t>(at(offset + element * itemsize + i)));
    std::size_t i = sizes.size();
    while (i > 0 && ++index[i - 1] == sizes[i - 1]) index[--i] = 0;
    if (i == 0) return bytes;
  }
}

TEST(FootprintTest, DimensionsThatContinueEachOtherAreOneRun) {
  const auto whole = strided(0, 4, {3, 5, 7}, {35, 7, 1});
  EXPECT_TRUE(whole.is_contiguous());
  EXPECT_EQ(whole, Footprint(at(0), 420));
  EXPECT_EQ(strided(0, 4, {7, 3, 5}, {1, 35, 7}), whole);  // in another order
  EXPECT_EQ(strided(0, 4, {3, 1, 35}, {35, 1000, 1}), whole);
  EXPECT_EQ(strided(0, 4, {9, 105}, {0, 1}), whole);  // repeated
}

TEST(FootprintTest, OverlappingWindowsAreOneRun) {
  EXPECT_EQ(strided(0, 4, {6, 3}, {1, 1}), Footprint(at(0), 32));
  EXPECT_EQ(strided(0, 4, {3, 4}, {2, 1}), Footprint(at(0), 32));
}

TEST(FootprintTest, ATensorWithoutElementsSharesNothing) {
  const auto none = strided(0, 4, {3, 0}, {7, 1});
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(common_byte(none, Footprint(at(0), 100)));
}

TEST(FootprintTest, HalvesColumnsAndDiagonalsAreApart) {
  const auto left = strided(0, 4, {8, 4}, {8, 1});
  const auto right = strided(16, 4, {8, 4}, {8, 1});
  EXPECT_FALSE(common_byte(left, right));
  const auto even = strided(0, 4, {8, 4}, {8, 2});
  const auto odd = strided(4, 4, {8, 4}, {8, 2});
  EXPECT_FALSE(common_byte(even, odd));
  const auto diagonal = strided(0, 4, {8}, {9});
  const auto above = strided(4, 4, {7}, {9});
  EXPECT_FALSE(common_byte(diagonal, above));
  EXPECT_EQ(common_byte(diagonal, right), reinterpret_cast<std::uintptr_t>(at(4 * 9 * 4)));
}

TEST(FootprintTest, WhatTakesTooLongToFindCountsAsNothing) {
  // Two million runs each, with strides that have no common divisor but 1.
  const auto a = strided(0, 1, {1 << 21}, {97});
  const auto b = strided(1, 1, {1 << 21}, {89});
  EXPECT_FALSE(strided(0, 1, {10}, {97}).empty());
  static_cast<void>(common_byte(a, b));  // returns in time
}

TEST(FootprintTest, CoversOnlyWhatItCertainlyHolds) {
  const Footprint block(at(0), 64);
  const auto columns = strided(0, 4, {4, 2}, {4, 1});
  EXPECT_TRUE(block.covers(columns));
  EXPECT_TRUE(columns.covers(columns));
  EXPECT_FALSE(columns.covers(block));
  EXPECT_FALSE(block.covers(Footprint(at(60), 8)));
}

// Random tensors, compared byte by byte.
TEST(FootprintTest, AgreesWithEveryByte) {
  const auto seed = memory::testing::seed();
  SCOPED_TRACE("OPENREG_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  int shared = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::set<std::uintptr_t> bytes[2];
    Footprint footprints[2];
    for (int i = 0; i < 2; ++i) {
      const auto itemsize = std::size_t{1} << below(4);
      const auto offset = static_cast<std::size_t>(below(40)) * itemsize;
      Numbers sizes;
      Numbers strides;
      for (auto dimensions = below(4); dimensions > 0; --dimensions) {
        sizes.push_back(below(20) == 0 ? 0 : 1 + below(5));
        strides.push_back(below(9));
      }
      bytes[i] = bytes_of(offset, itemsize, sizes, strides);
      footprints[i] = strided(offset, itemsize, sizes, strides);
      ASSERT_EQ(footprints[i].empty(), bytes[i].empty());
      if (bytes[i].empty()) continue;
      ASSERT_EQ(footprints[i].begin(), *bytes[i].begin());
      ASSERT_EQ(footprints[i].end(), *bytes[i].rbegin() + 1);
      ASSERT_GE(footprints[i].bytes(), bytes[i].size());
    }
    std::vector<std::uintptr_t> common;
    std::ranges::set_intersection(bytes[0], bytes[1], std::back_inserter(common));
    const auto found = common_byte(footprints[0], footprints[1]);
    ASSERT_EQ(found.has_value(), !common.empty()) << "round " << round;
    ASSERT_EQ(common_byte(footprints[1], footprints[0]).has_value(), !common.empty());
    if (found) {
      ASSERT_TRUE(std::ranges::binary_search(common, *found)) << "round " << round;
    }
    if (footprints[0].covers(footprints[1])) {
      ASSERT_TRUE(std::ranges::includes(bytes[0], bytes[1])) << "round " << round;
    }
    shared += found ? 1 : 0;
  }
  EXPECT_GT(shared, 1000);
}

}  // namespace
}  // namespace openreg::memory
