#include "memory/policy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace openreg::memory {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

Policy divided(std::size_t divisions) {
  Policy policy;
  policy.power2_divisions.fill(divisions);
  return policy;
}

TEST(Policy, SizesAreRoundedToBlocksUnlessMoreIsAskedFor) {
  for (const std::size_t divisions : {0, 1}) {
    const Policy policy = divided(divisions);
    EXPECT_EQ(policy.round(1), 512U);
    EXPECT_EQ(policy.round(512), 512U);
    EXPECT_EQ(policy.round(513), 1024U);
    EXPECT_EQ(policy.round(kMiB + 1), kMiB + 512);
    EXPECT_EQ(policy.round(5 * kGiB - 1), 5 * kGiB);
  }
}

// The example of PyTorch's notes: with 4 divisions the steps between 1024 and 2048 are 1024, 1280,
// 1536 and 1792, so that 1200 becomes 1280. This holds only for sizes above 512 times the
// divisions: here all sizes are multiplied by 1 KiB.
TEST(Policy, TheWayToTheNextPowerOfTwoIsDivided) {
  const Policy policy = divided(4);
  EXPECT_EQ(policy.round(1024 * kKiB), 1024 * kKiB);
  EXPECT_EQ(policy.round(1025 * kKiB), 1280 * kKiB);
  EXPECT_EQ(policy.round(1200 * kKiB), 1280 * kKiB);
  EXPECT_EQ(policy.round(1280 * kKiB), 1280 * kKiB);
  EXPECT_EQ(policy.round(1280 * kKiB + 1), 1536 * kKiB);
  EXPECT_EQ(policy.round(1600 * kKiB), 1792 * kKiB);
  EXPECT_EQ(policy.round(1793 * kKiB), 2048 * kKiB);
  EXPECT_EQ(policy.round(2048 * kKiB), 2048 * kKiB);
  EXPECT_EQ(policy.round(2049 * kKiB), 2560 * kKiB);
}

TEST(Policy, SizesOfFewBlocksAreNotDivided) {
  const Policy policy = divided(4);
  EXPECT_EQ(policy.round(1200), 1536U);
  EXPECT_EQ(policy.round(2048), 2048U);
  EXPECT_EQ(policy.round(2049), 2560U);  // 2048 to 4096 in steps of 512
  EXPECT_EQ(policy.round(4097), 5120U);  // 4096 to 8192 in steps of 1024
}

TEST(Policy, EachRangeOfSizesHasItsOwnDivisions) {
  Policy policy;
  policy.power2_divisions = {};
  policy.power2_divisions[9] = 2;   // from 512 MiB
  policy.power2_divisions[10] = 4;  // from 1 GiB
  policy.power2_divisions[15] = 8;  // from 32 GiB, to the end
  EXPECT_EQ(policy.round(500 * kMiB + 1), 500 * kMiB + 512);
  EXPECT_EQ(policy.round(512 * kMiB - 1), 512 * kMiB);
  EXPECT_EQ(policy.round(512 * kMiB + 1), 768 * kMiB);
  EXPECT_EQ(policy.round(768 * kMiB + 1), 1024 * kMiB);
  EXPECT_EQ(policy.round(1024 * kMiB + 1), 1280 * kMiB);
  EXPECT_EQ(policy.round(2 * kGiB + 1), 2 * kGiB + 512);
  EXPECT_EQ(policy.round(32 * kGiB + 1), 36 * kGiB);
  EXPECT_EQ(policy.round(64 * kGiB + 1), 72 * kGiB);
  EXPECT_EQ(policy.round(1024 * kGiB + 1), 1152 * kGiB);
}

TEST(Policy, TheFirstRangeIsOfAllSizesBelowTwoMebibytes) {
  Policy policy;
  policy.power2_divisions[0] = 2;
  EXPECT_EQ(policy.round(1025), 1536U);
  EXPECT_EQ(policy.round(2 * kKiB + 1), 3 * kKiB);
  EXPECT_EQ(policy.round(kMiB + kMiB / 2 + 1), 2 * kMiB);
  EXPECT_EQ(policy.round(2 * kMiB + 1), 2 * kMiB + 512);
}

TEST(Policy, WhatIsNoPowerOfTwoDividesLikeTheNextLower) {
  const Policy policy = divided(7);
  EXPECT_EQ(policy.round(kMiB + 1), kMiB + kMiB / 4);
}

TEST(Policy, ARoundedSizeIsAMultipleOfBlocksAndStaysAsItIs) {
  for (const std::size_t divisions : {0, 1, 2, 3, 4, 7, 8, 16, 64}) {
    const Policy policy = divided(divisions);
    for (std::size_t bytes = 1; bytes < 64 * kMiB; bytes += bytes / 7 + 1) {
      const std::size_t rounded = policy.round(bytes);
      ASSERT_GE(rounded, bytes);
      ASSERT_EQ(rounded % kBlockBytes, 0U) << bytes << " in " << divisions;
      ASSERT_EQ(policy.round(rounded), rounded) << bytes << " in " << divisions;
    }
  }
}

TEST(Policy, OversizeBeginsWithTheSizeItself) {
  Policy policy;
  EXPECT_FALSE(policy.is_oversize(1024 * kGiB));
  policy.max_split_bytes = 32 * kMiB;
  EXPECT_FALSE(policy.is_oversize(32 * kMiB - 1));
  EXPECT_TRUE(policy.is_oversize(32 * kMiB));
}

}  // namespace
}  // namespace openreg::memory
