#include "memory/block_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>

#include "address_space/fault_message.h"

namespace openreg::memory {
namespace {

constexpr std::uintptr_t kBegin = std::uintptr_t{1} << 40;
constexpr std::size_t kBytes = 5 * kSegmentBytes;

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

std::size_t resident_bytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class BlockMapTest : public testing::Test {
 protected:
  void SetUp() override { map.cover(kBegin, kBytes); }

  BlockMap map;
  Block block;
  Block other;
};

TEST_F(BlockMapTest, ABlockIsFoundByTheAddressItWasSetFor) {
  const auto first = at(kBegin);
  const auto inside = at(kBegin + 3 * kSegmentBytes + 7 * kBlockBytes);
  const auto last = at(kBegin + kBytes - kBlockBytes);
  map.set(first, &block);
  map.set(inside, &other);
  map.set(last, &block);
  EXPECT_EQ(map.find(first), &block);
  EXPECT_EQ(map.find(inside), &other);
  EXPECT_EQ(map.find(last), &block);
}

TEST_F(BlockMapTest, ABlockThatWasForgottenIsNotFound) {
  map.set(at(kBegin + kBlockBytes), &block);
  map.set(at(kBegin + 2 * kBlockBytes), &other);
  map.set(at(kBegin + kBlockBytes), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kBlockBytes)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + 2 * kBlockBytes)), &other);
}

TEST_F(BlockMapTest, AnAddressInsideOfABlockIsNoBlocks) {
  map.set(at(kBegin), &block);
  EXPECT_EQ(map.find(at(kBegin + 1)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kBlockBytes - 1)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kBlockBytes)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kSegmentBytes)), nullptr);
}

TEST_F(BlockMapTest, AddressesOutsideOfTheWindowAreNoBlocks) {
  map.set(at(kBegin), &block);
  map.set(at(kBegin + kBytes - kBlockBytes), &block);
  EXPECT_EQ(map.find(nullptr), nullptr);
  EXPECT_EQ(map.find(&block), nullptr);
  EXPECT_EQ(map.find(at(kBegin - kBlockBytes)), nullptr);
  EXPECT_EQ(map.find(at(kBegin - 1)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kBytes)), nullptr);
  EXPECT_EQ(map.find(at(kBegin + kBytes + kSegmentBytes)), nullptr);
  EXPECT_EQ(map.find(at(std::numeric_limits<std::uintptr_t>::max())), nullptr);
}

TEST(BlockMap, AMapThatCoversNothingFindsNothing) {
  const BlockMap map;
  EXPECT_FALSE(map.covers_something());
  EXPECT_EQ(map.find(nullptr), nullptr);
  EXPECT_EQ(map.find(at(kBegin)), nullptr);
}

TEST(BlockMap, AWindowThatEndsInTheMiddleOfALeafIsCoveredToItsEnd) {
  BlockMap map;
  Block block;
  map.cover(kBegin, kSegmentBytes + 2 * kBlockBytes);
  EXPECT_TRUE(map.covers_something());
  map.set(at(kBegin + kSegmentBytes + kBlockBytes), &block);
  EXPECT_EQ(map.find(at(kBegin + kSegmentBytes + kBlockBytes)), &block);
  EXPECT_EQ(map.find(at(kBegin + kSegmentBytes + 2 * kBlockBytes)), nullptr);
}

TEST(BlockMap, ALargeWindowCostsMemoryOnlyWhereBlocksAre) {
  if (!kFaultMessageAvailable) GTEST_SKIP() << "the shadow memory of a sanitizer is resident too";
  constexpr std::size_t kTebibyte = std::size_t{1} << 40;
  BlockMap map;
  Block block;
  const std::size_t before = resident_bytes();
  map.cover(kBegin, 8 * kTebibyte);
  for (std::size_t i = 0; i < 8; ++i) map.set(at(kBegin + i * kTebibyte), &block);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(map.find(at(kBegin + i * kTebibyte)), &block);
  // The table alone would have 32 MiB. A leaf has 32 KiB.
  EXPECT_LT(resident_bytes(), before + (std::size_t{4} << 20));
}

}  // namespace
}  // namespace openreg::memory
