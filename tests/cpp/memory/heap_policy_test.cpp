// Heap: blocks that are not split, and garbage collection.
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

#include "heap_checks.h"
#include "memory/heap.h"

namespace openreg::memory {
namespace {

using namespace testing;

constexpr auto kLarge = SizeClass::kLarge;

std::multiset<std::size_t> mebibytes(const Heap::Pieces& pieces) {
  std::multiset<std::size_t> result;
  for (const auto* piece : pieces) result.insert(piece->bytes / kMiB);
  return result;
}
using MiB = std::multiset<std::size_t>;

// --- Rounding ---

TEST_F(HeapTest, BlocksHaveTheSizeThatThePolicyRoundsTo) {
  Policy policy;
  policy.power2_divisions.fill(4);
  heap.set_policy(policy);
  void* block = allocate(4 * kMiB + 1);
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(5 * kMiB));
  EXPECT_EQ(statistics().requested_bytes.current(), signed_bytes(4 * kMiB + 1));
  heap.free(block);
  EXPECT_EQ(heap.allocate_cached(5 * kMiB, stream(0)), block);
}

TEST_F(HeapTest, TheClassOfABlockIsThatOfItsRoundedSize) {
  Policy policy;
  policy.power2_divisions.fill(1);
  policy.power2_divisions[0] = 2;
  heap.set_policy(policy);
  allocate(kMiB);
  allocate(kMiB + 1);
  EXPECT_EQ(statistics().allocation.of(kLarge).current, 1);
  EXPECT_EQ(statistics().allocated_bytes.of(kLarge).current, signed_bytes(kMiB + kMiB / 2));
}

// --- max_split_size ---

class HeapOversizeTest : public HeapTest {
 protected:
  void SetUp() override {
    Policy policy;
    policy.max_split_bytes = 6 * kMiB;
    policy.max_non_split_rounding = 2 * kMiB;
    heap.set_policy(policy);
  }
  // Free blocks of these sizes, each a segment.
  void cache(const Sizes& sizes, int on = 0) {
    std::vector<void*> blocks;
    for (const std::size_t bytes : sizes) blocks.push_back(allocate(bytes, on));
    for (void* block : blocks) heap.free(block);
  }
};

TEST_F(HeapOversizeTest, AnOversizeBlockIsASegment) {
  allocate(2 * kMiB);
  void* block = allocate(7 * kMiB);
  EXPECT_EQ(backing.maps, (Sizes{2 * kMiB, 8 * kMiB}));
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(10 * kMiB));
  EXPECT_EQ(statistics().requested_bytes.current(), signed_bytes(9 * kMiB));
  EXPECT_EQ(statistics().oversize_allocations.of(kLarge), (Stat{1, 1, 1, 0}));
  EXPECT_EQ(statistics().oversize_segments.of(kLarge), (Stat{1, 1, 1, 0}));
  EXPECT_EQ(heap.free(block), 8 * kMiB);
  EXPECT_EQ(statistics().oversize_allocations.of(kLarge), (Stat{0, 1, 1, 1}));
  EXPECT_EQ(statistics().oversize_segments.of(kLarge).current, 1);
  EXPECT_EQ(statistics().inactive_split.all(), Stat{});
  empty_cache();
  EXPECT_EQ(statistics().oversize_segments.of(kLarge), (Stat{0, 1, 1, 1}));
}

TEST_F(HeapOversizeTest, BlocksBelowTheSizeAreSplitAndGrowAsEver) {
  void* a = allocate(3 * kMiB);
  EXPECT_EQ(allocate(3 * kMiB), behind(a, 3 * kMiB));
  EXPECT_EQ(statistics().oversize_segments.current(), 0);
}

TEST_F(HeapOversizeTest, AnOversizeBlockServesNoSmallerRequest) {
  cache({8 * kMiB});
  EXPECT_EQ(heap.allocate_cached(2 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
}

TEST_F(HeapOversizeTest, AnOversizeBlockIsUsedAsAWholeWhereLittleIsLostByThat) {
  cache({8 * kMiB});
  EXPECT_EQ(heap.allocate_cached(6 * kMiB, stream(0)), nullptr);  // 2 MiB would be lost
  void* block = heap.allocate_cached(6 * kMiB + 1, stream(0));
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(8 * kMiB));
  EXPECT_EQ(statistics().requested_bytes.current(), signed_bytes(6 * kMiB + 1));
}

// The smallest block that is large enough must not be used, but a larger one may.
TEST_F(HeapOversizeTest, AnOversizeBlockDoesNotHideOneThatMayBeSplit) {
  void* a = allocate(4 * kMiB);
  void* b = allocate(4 * kMiB);
  void* c = allocate(4 * kMiB);
  heap.free(allocate(8 * kMiB));
  for (void* block : {a, b, c}) heap.free(block);  // one free block of 12 MiB
  EXPECT_EQ(heap.allocate_cached(2 * kMiB, stream(0)), a);
  EXPECT_EQ(heap.allocate_cached(6 * kMiB, stream(0)), behind(a, 2 * kMiB));
}

TEST_F(HeapOversizeTest, OneOversizeBlockIsDetachedWhereItIsLargeEnoughTheSmallestSuch) {
  cache({6 * kMiB, 8 * kMiB, 12 * kMiB});
  const auto pieces = heap.detach_oversize(7 * kMiB, stream(0));
  EXPECT_EQ(mebibytes(pieces), (MiB{8}));
  heap.restore(pieces);
  const auto exact = heap.detach_oversize(12 * kMiB, stream(0));
  EXPECT_EQ(mebibytes(exact), (MiB{12}));
  heap.restore(exact);
}

TEST_F(HeapOversizeTest, OversizeBlocksAreDetachedTheLargestFirstUntilTheyMakeRoom) {
  cache({6 * kMiB, 8 * kMiB, 12 * kMiB});
  const auto pieces = heap.detach_oversize(14 * kMiB, stream(0));
  EXPECT_EQ(mebibytes(pieces), (MiB{8, 12}));
  heap.release(pieces);
  EXPECT_EQ(reserved(), 6 * kMiB);
  EXPECT_EQ(statistics().oversize_segments.current(), 1);
}

TEST_F(HeapOversizeTest, NothingIsDetachedWhereItWouldNotMakeRoom) {
  cache({6 * kMiB, 8 * kMiB, 12 * kMiB});
  EXPECT_TRUE(heap.detach_oversize(28 * kMiB, stream(0)).empty());
  EXPECT_NE(heap.allocate_cached(12 * kMiB, stream(0)), nullptr);
}

TEST_F(HeapOversizeTest, NothingIsDetachedForARequestThatIsNotOversize) {
  cache({8 * kMiB});
  EXPECT_TRUE(heap.detach_oversize(4 * kMiB, stream(0)).empty());
}

TEST_F(HeapOversizeTest, OnlyOversizeBlocksOfTheStreamAreDetached) {
  cache({8 * kMiB}, 1);
  cache({4 * kMiB, 4 * kMiB});
  EXPECT_TRUE(heap.detach_oversize(7 * kMiB, stream(0)).empty());
}

// --- Garbage collection ---

class HeapCollectionTest : public HeapTest {
 protected:
  void set_threshold(double threshold) {
    Policy policy;
    policy.garbage_collection_threshold = threshold;
    heap.set_policy(policy);
  }
  void* cached(std::size_t bytes, int on) {
    void* block = allocate(bytes, on);
    heap.free(block);
    return block;
  }
};

TEST_F(HeapCollectionTest, WhatHasBeenUnusedForLongestGoesFirstUntilTheThresholdIsMet) {
  heap.set_limit(20 * kMiB);
  set_threshold(0.5);
  cached(4 * kMiB, 2);
  cached(4 * kMiB, 0);
  void* third = cached(4 * kMiB, 1);
  heap.release(heap.detach_oldest());
  EXPECT_EQ(reserved(), 8 * kMiB);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(2)), nullptr);
  allocate(4 * kMiB, 2);  // above the threshold again
  heap.release(heap.detach_oldest());
  EXPECT_EQ(reserved(), 8 * kMiB);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(1)), third);
}

TEST_F(HeapCollectionTest, ABlockThatIsUsedAgainIsYoungAgain) {
  heap.set_limit(20 * kMiB);
  set_threshold(0.5);
  cached(6 * kMiB, 0);
  cached(6 * kMiB, 1);
  cached(6 * kMiB, 0);
  heap.release(heap.detach_oldest());
  EXPECT_NE(heap.allocate_cached(6 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_cached(6 * kMiB, stream(1)), nullptr);
}

TEST_F(HeapCollectionTest, NothingGoesBelowTheThreshold) {
  heap.set_limit(20 * kMiB);
  set_threshold(0.5);
  cached(10 * kMiB, 0);
  EXPECT_TRUE(heap.detach_oldest().empty());
}

TEST_F(HeapCollectionTest, NothingGoesUnlessAThresholdIsSet) {
  heap.set_limit(20 * kMiB);
  cached(20 * kMiB, 0);
  EXPECT_TRUE(heap.detach_oldest().empty());
}

TEST_F(HeapCollectionTest, NothingGoesWithoutALimit) {
  set_threshold(0.5);
  cached(20 * kMiB, 0);
  EXPECT_TRUE(heap.detach_oldest().empty());
}

TEST_F(HeapCollectionTest, WhatCannotGoBackDoesNotCount) {
  heap.set_limit(10 * kMiB);
  set_threshold(0.7);
  void* part = allocate(kMiB + kMiB / 2);
  allocate(2 * kMiB);
  heap.free(part);  // neither it nor the rest after the other block contains a whole piece
  cached(4 * kMiB, 1);
  ASSERT_EQ(reserved(), 8 * kMiB);
  heap.release(heap.detach_oldest());
  EXPECT_EQ(backing.unmaps, Sizes{4 * kMiB});
}

TEST_F(HeapCollectionTest, PrivatePoolsAreLeftAlone) {
  heap.set_limit(20 * kMiB);
  set_threshold(0.5);
  const int route = heap.add_route({1, 0}, [](const Stream&) { return true; });
  cached(20 * kMiB, 0);
  EXPECT_TRUE(heap.detach_oldest().empty());
  heap.remove_route(route);
}

}  // namespace
}  // namespace openreg::memory
