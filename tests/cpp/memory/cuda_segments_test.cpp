// Heap: each rule of CUDA's allocator. tests/python/memory/test_cuda_segments.py compares all of
// them with a model.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "heap_checks.h"
#include "memory/heap.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using namespace testing;

constexpr auto kLarge = SizeClass::kLarge;
using Placed = std::vector<std::pair<std::size_t, std::size_t>>;

class CudaSegmentsTest : public HeapTest {
 protected:
  CudaSegmentsTest() { use(Segments::kCuda); }
  void use(Segments segments) {
    policy.segments = segments;
    heap.set_policy(policy);
  }
  void free(void* block) { heap.free(block); }
  std::size_t allocated() {
    return static_cast<std::size_t>(statistics().allocated_bytes.current());
  }

  Policy policy;
};

// --- Segments ---

TEST_F(CudaSegmentsTest, SmallBlocksShareSegmentsOf2MiB) {
  allocate(1);
  allocate(kMiB);
  EXPECT_EQ(backing.maps, Sizes{2 * kMiB});
  allocate(kMiB);
  EXPECT_EQ(backing.maps, (Sizes{2 * kMiB, 2 * kMiB}));
}

TEST_F(CudaSegmentsTest, BlocksBelow10MiBShareSegmentsOf20MiB) {
  void* const a = allocate(kMiB + 1);
  EXPECT_EQ(backing.maps, Sizes{20 * kMiB});
  EXPECT_EQ(allocate(10 * kMiB - 1), behind(a, kMiB + 512));
  EXPECT_EQ(backing.maps, Sizes{20 * kMiB});
}

TEST_F(CudaSegmentsTest, LargerBlocksHaveASegmentOfAMultipleOf2MiB) {
  allocate(10 * kMiB);
  allocate(11 * kMiB);
  EXPECT_EQ(backing.maps, (Sizes{10 * kMiB, 12 * kMiB}));
  EXPECT_EQ(statistics().segment.of(kLarge).current, 2);
}

TEST_F(CudaSegmentsTest, TheSizeOfLargeSegmentsIsASetting) {
  policy.large_segment_bytes = 12 * kMiB;
  use(Segments::kCuda);
  allocate(2 * kMiB);
  EXPECT_EQ(backing.maps, Sizes{12 * kMiB});
}

TEST_F(CudaSegmentsTest, ASegmentDoesNotGrow) {
  free(allocate(12 * kMiB));
  allocate(14 * kMiB);
  EXPECT_EQ(backing.maps, (Sizes{12 * kMiB, 14 * kMiB}));
  EXPECT_TRUE(backing.extensions.empty());
}

TEST_F(CudaSegmentsTest, ASegmentServesOneStreamAndOneClass) {
  free(allocate(20 * kMiB));
  allocate(2 * kMiB, 1);
  allocate(512);
  EXPECT_EQ(backing.maps, (Sizes{20 * kMiB, 20 * kMiB, 2 * kMiB}));
}

TEST_F(CudaSegmentsTest, OnlyWholeSegmentsAreReturned) {
  void* const a = allocate(8 * kMiB);
  void* const b = allocate(kMiB + 512);
  free(a);
  free(allocate(30 * kMiB));
  empty_cache();
  EXPECT_EQ(backing.unmaps, Sizes{30 * kMiB});
  free(b);
  empty_cache();
  EXPECT_EQ(backing.unmaps, (Sizes{30 * kMiB, 20 * kMiB}));
  EXPECT_EQ(statistics().segment.all(), (Stat{0, 2, 2, 2}));
}

// --- Splitting ---

TEST_F(CudaSegmentsTest, ASmallBlockIsSplitDownTo512Bytes) {
  allocate(kMiB);
  allocate(kMiB - 512);
  EXPECT_EQ(allocated(), 2 * kMiB - 512);
  allocate(512);
  EXPECT_EQ(backing.maps.size(), 1U);
}

TEST_F(CudaSegmentsTest, ARemainderOfUpTo1MiBOfALargeBlockIsNotSplitOffAndCountsAsAllocated) {
  allocate(11 * kMiB);
  EXPECT_EQ(allocated(), 12 * kMiB);
  EXPECT_EQ(statistics().requested_bytes.current(), signed_bytes(11 * kMiB));
  EXPECT_EQ(statistics().inactive_split.current(), 0);
}

TEST_F(CudaSegmentsTest, ALargerRemainderIsSplitOff) {
  allocate(11 * kMiB - 512);
  EXPECT_EQ(allocated(), 11 * kMiB - 512);
  EXPECT_EQ(statistics().inactive_split.current(), 1);
  EXPECT_EQ(statistics().inactive_split_bytes.current(), signed_bytes(kMiB + 512));
}

TEST_F(CudaSegmentsTest, AFreedBlockMergesWithItsNeighbours) {
  void* const a = allocate(4 * kMiB);
  void* const b = allocate(4 * kMiB);
  void* const c = allocate(4 * kMiB);
  free(a);
  free(c);
  free(b);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{0, 2, 2, 2}));
  EXPECT_EQ(allocate(20 * kMiB), a);
}

// --- The choice of a block ---

TEST_F(CudaSegmentsTest, TheSmallestBlockThatFitsIsTaken) {
  void* const large = allocate(16 * kMiB);
  void* const small = allocate(12 * kMiB);
  free(large);
  free(small);
  EXPECT_EQ(allocate(12 * kMiB), small);
  EXPECT_EQ(allocate(2 * kMiB), large);
}

TEST_F(CudaSegmentsTest, OfBlocksOfOneSizeThatOfTheOldestSegmentIsTaken) {
  backing.room_pages = 0;
  void* const gap = allocate(12 * kMiB, 1);
  void* const older = allocate(12 * kMiB);
  free(gap);
  empty_cache();
  void* const newer = allocate(12 * kMiB);
  ASSERT_LT(newer, older);
  free(older);
  free(newer);
  EXPECT_EQ(allocate(12 * kMiB), older);
  EXPECT_EQ(allocate(12 * kMiB), newer);
}

TEST_F(CudaSegmentsTest, OfSmallBlocksOfOneSizeInASegmentTheLowestIsTaken) {
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocate(512));
  free(blocks[0]);
  free(blocks[4]);
  free(blocks[2]);
  EXPECT_EQ(allocate(512), blocks[0]);
  EXPECT_EQ(allocate(512), blocks[2]);
}

TEST_F(CudaSegmentsTest, APoolThatIsMadeLaterHasTheSameOrder) {
  heap.add_route({1, 0}, [](const Stream&) { return true; });
  void* const first = allocate(512);
  allocate(512);
  void* const third = allocate(512);
  allocate(512);
  free(first);
  free(third);
  EXPECT_EQ(allocate(512), first);
}

// --- max_split_size ---

class CudaOversizeTest : public CudaSegmentsTest {
 protected:
  CudaOversizeTest() {
    policy.max_split_bytes = 21 * kMiB;
    policy.max_non_split_rounding = 4 * kMiB;
    use(Segments::kCuda);
  }
};

TEST_F(CudaOversizeTest, AnOversizeBlockIsNotSplit) {
  free(allocate(24 * kMiB));
  allocate(21 * kMiB);
  EXPECT_EQ(allocated(), 24 * kMiB);
  EXPECT_EQ(statistics().oversize_allocations.all(), (Stat{1, 1, 2, 1}));
  EXPECT_EQ(statistics().oversize_segments.current(), 1);
}

TEST_F(CudaOversizeTest, ABlockBelowTheSizeIsSplitOffAnOversizeSegment) {
  allocate(21 * kMiB - kMiB / 2);
  EXPECT_EQ(backing.maps, Sizes{22 * kMiB});
  EXPECT_EQ(allocated(), 21 * kMiB - kMiB / 2);
  EXPECT_EQ(statistics().oversize_segments.current(), 1);
  EXPECT_EQ(statistics().oversize_allocations.current(), 0);
}

TEST_F(CudaOversizeTest, AnOversizeBlockServesNoSmallerRequest) {
  free(allocate(24 * kMiB));
  EXPECT_EQ(heap.allocate_cached(12 * kMiB, stream(0)), nullptr);
}

TEST_F(CudaOversizeTest, AnOversizeBlockIsUsedOnlyIfLittleIsLost) {
  free(allocate(26 * kMiB));
  EXPECT_EQ(heap.allocate_cached(22 * kMiB, stream(0)), nullptr);
  EXPECT_NE(heap.allocate_cached(22 * kMiB + 512, stream(0)), nullptr);
}

TEST_F(CudaOversizeTest, TheSmallestBlockThatMakesRoomIsDetached) {
  void* const a = allocate(22 * kMiB);
  void* const b = allocate(30 * kMiB);
  free(a);
  free(b);
  heap.release(heap.detach_oversize(24 * kMiB, stream(0)));
  EXPECT_EQ(backing.unmaps, Sizes{30 * kMiB});
}

TEST_F(CudaOversizeTest, ForASmallerRequestAnOversizeBlockIsDetached) {
  free(allocate(24 * kMiB));
  heap.release(heap.detach_oversize(2 * kMiB, stream(0)));
  EXPECT_EQ(backing.unmaps, Sizes{24 * kMiB});
  free(allocate(24 * kMiB));
  EXPECT_TRUE(heap.detach_oversize(kMiB, stream(0)).empty());
}

TEST_F(CudaOversizeTest, IfNoneMakesRoomTheLargestAreDetachedEvenIfTheyAreTooFew) {
  void* const a = allocate(22 * kMiB);
  void* const b = allocate(24 * kMiB);
  void* const c = allocate(12 * kMiB);
  for (void* block : {a, b, c}) free(block);
  heap.release(heap.detach_oversize(60 * kMiB, stream(0)));
  EXPECT_EQ(backing.unmaps, (Sizes{24 * kMiB, 22 * kMiB}));
}

// --- The limit, and garbage collection ---

TEST_F(CudaSegmentsTest, NoMoreThanTheLimitIsReserved) {
  heap.set_limit(22 * kMiB);
  EXPECT_NE(allocate(2 * kMiB), nullptr);
  EXPECT_NE(allocate(1), nullptr);
  EXPECT_EQ(allocate(1, 1), nullptr);
  EXPECT_EQ(reserved(), 22 * kMiB);
}

class CudaCollectionTest : public CudaSegmentsTest {
 protected:
  CudaCollectionTest() {
    policy.garbage_collection_threshold = 0.5;
    use(Segments::kCuda);
    heap.set_limit(60 * kMiB, /*by_program=*/true);
  }
};

TEST_F(CudaCollectionTest, LargeSegmentsOfAtLeastTheAverageAgeGoEvenIfFewerWouldDo) {
  free(allocate(10 * kMiB, 0));
  free(allocate(10 * kMiB, 1));
  free(allocate(10 * kMiB, 2));
  free(allocate(10 * kMiB, 3));
  heap.release(heap.detach_oldest());
  EXPECT_EQ(reserved(), 20 * kMiB);
  EXPECT_EQ(heap.allocate_cached(10 * kMiB, stream(1)), nullptr);
  EXPECT_NE(heap.allocate_cached(10 * kMiB, stream(2)), nullptr);
}

TEST_F(CudaCollectionTest, PassesAreRepeatedUntilEnoughIsReturned) {
  for (int i = 0; i < 5; ++i) free(allocate(10 * kMiB, i));
  allocate(10 * kMiB, 4);  // so that its age is not needed
  heap.release(heap.detach_oldest());
  EXPECT_EQ(reserved(), 30 * kMiB);
}

TEST_F(CudaCollectionTest, SplitAndSmallBlocksStay) {
  void* const part = allocate(8 * kMiB);
  allocate(2 * kMiB);
  allocate(20 * kMiB);
  free(part);
  free(allocate(512));
  EXPECT_TRUE(heap.detach_oldest().empty());
}

TEST_F(CudaCollectionTest, NothingGoesUnlessTheProgramHasSetTheLimit) {
  heap.set_limit(60 * kMiB);
  free(allocate(40 * kMiB));
  EXPECT_TRUE(heap.detach_oldest().empty());
}

// --- expandable_segments ---

class CudaExpandableTest : public CudaSegmentsTest {
 protected:
  CudaExpandableTest() { use(Segments::kCudaExpandable); }
  // Where memory has been mapped, relative to the first place, and how much.
  Placed placed() const {
    Placed result = backing.placed;
    for (auto& [where, bytes] : result) where -= backing.placed.front().first;
    return result;
  }
};

TEST_F(CudaExpandableTest, MemoryIsAddedByPagesOf2And20MiB) {
  allocate(1);
  EXPECT_EQ(reserved(), 2 * kMiB);
  allocate(2 * kMiB);
  EXPECT_EQ(reserved(), 22 * kMiB);
  EXPECT_EQ(statistics().device_maps, 2);
  EXPECT_TRUE(backing.maps.empty());
}

TEST_F(CudaExpandableTest, OnlyWhatIsMissingAtTheEndIsMapped) {
  void* const a = allocate(15 * kMiB);
  EXPECT_EQ(allocate(21 * kMiB), behind(a, 15 * kMiB));
  EXPECT_EQ(placed(), (Placed{{0, 20 * kMiB}, {20 * kMiB, 20 * kMiB}}));
  EXPECT_EQ(allocated(), 36 * kMiB);
}

TEST_F(CudaExpandableTest, LargeBlocksAreSplitDownTo512Bytes) {
  allocate(20 * kMiB - 512);
  EXPECT_EQ(allocated(), 20 * kMiB - 512);
}

TEST_F(CudaExpandableTest, NeitherSegmentsNorInactiveBlocksAreCounted) {
  void* const a = allocate(2 * kMiB);
  allocate(2 * kMiB);
  free(a);
  EXPECT_EQ(statistics().segment.all(), Stat{});
  EXPECT_EQ(statistics().inactive_split.all(), Stat{});
  EXPECT_EQ(statistics().inactive_split_bytes.all(), Stat{});
}

TEST_F(CudaExpandableTest, FreePagesWithinASegmentAreReturned) {
  void* const a = allocate(30 * kMiB);
  allocate(2 * kMiB);
  free(a);
  empty_cache();
  EXPECT_EQ(backing.unmaps, Sizes{20 * kMiB});
  EXPECT_EQ(reserved(), 20 * kMiB);
  EXPECT_EQ(statistics().device_unmaps, 1);
}

TEST_F(CudaExpandableTest, TheLowestGapWithEnoughAddressesIsMappedFirst) {
  void* const a = allocate(20 * kMiB);
  allocate(1536 * 1024);
  free(a);
  empty_cache();
  EXPECT_EQ(allocate(20 * kMiB), a);
  EXPECT_EQ(placed().back(), (std::pair{std::size_t{0}, 20 * kMiB}));
  EXPECT_EQ(heap.segments().size(), 1U);
}

TEST_F(CudaExpandableTest, AGapIsFilledTogetherWithTheFreeBlocksNextToIt) {
  void* const a = allocate(30 * kMiB);
  allocate(2 * kMiB);
  free(a);
  empty_cache();  // 20 MiB of addresses, and 10 MiB of memory after them
  EXPECT_EQ(allocate(30 * kMiB), a);
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(heap.segments().size(), 1U);
}

TEST_F(CudaExpandableTest, ASegmentThatIsReturnedAsAWholeGivesItsAddressesBack) {
  free(allocate(30 * kMiB));
  EXPECT_GE(backing.reserved(), 72 * kMiB);
  empty_cache();
  EXPECT_EQ(backing.reserved(), 0U);
  EXPECT_TRUE(heap.segments().empty());
}

TEST_F(CudaExpandableTest, AddressesAreGivenBackIfNothingCouldBeMapped) {
  EXPECT_EQ(allocate(100 * kMiB), nullptr);
  EXPECT_EQ(backing.reserved(), 0U);
}

TEST_F(CudaExpandableTest, AnotherSegmentBeginsWhereOneHasNoMoreAddresses) {
  backing.most_reserved = 20 * kMiB;
  allocate(15 * kMiB);
  allocate(15 * kMiB);
  EXPECT_EQ(heap.segments().size(), 2U);
  EXPECT_EQ(reserved(), 40 * kMiB);
}

// 64 MiB: the last 4 are less than a page.
TEST_F(CudaExpandableTest, ALargeBlockNeedsWholePages) {
  EXPECT_NE(allocate(60 * kMiB), nullptr);
  EXPECT_EQ(allocate(2 * kMiB), nullptr);
  EXPECT_NE(allocate(kMiB), nullptr);
}

TEST_F(CudaExpandableTest, ALimitOfTheProgramIsComparedWithASegmentOfTheUsualSize) {
  heap.set_limit(30 * kMiB, /*by_program=*/true);
  EXPECT_NE(allocate(18 * kMiB), nullptr);
  EXPECT_EQ(allocate(12 * kMiB), nullptr);  // one page would do, but 20 + 12 > 30
  heap.set_limit(40 * kMiB);
  EXPECT_NE(allocate(12 * kMiB), nullptr);
}

TEST_F(CudaExpandableTest, ABlockThatCannotGrowIsPreferred) {
  void* const a = allocate(4 * kMiB);
  allocate(2 * kMiB);
  void* const c = allocate(12 * kMiB);
  free(a);
  free(c);  // 14 MiB at the end, which can grow
  EXPECT_EQ(allocate(3 * kMiB), a);
}

TEST_F(CudaExpandableTest, SegmentsOfBothKindsExistSideBySide) {
  free(allocate(12 * kMiB));
  use(Segments::kCuda);
  EXPECT_EQ(heap.allocate_cached(12 * kMiB, stream(0)), nullptr);
  void* const whole = allocate(12 * kMiB);
  EXPECT_EQ(backing.maps, Sizes{12 * kMiB});
  free(whole);
  use(Segments::kCudaExpandable);
  EXPECT_EQ(allocate(12 * kMiB), whole);
}

// --- Kinds of segments ---

TEST_F(CudaSegmentsTest, AHeapWithMemoryKeepsItsRules) {
  void* const block = allocate(12 * kMiB);
  EXPECT_NE(error_of([&] { use(Segments::kGrowing); }).find("while it has memory"),
            std::string::npos);
  EXPECT_EQ(heap.policy().segments, Segments::kCuda);
  free(block);
  empty_cache();
  use(Segments::kGrowing);
  allocate(12 * kMiB + 512);
  EXPECT_EQ(allocated(), 12 * kMiB + 512);
}

TEST_F(CudaSegmentsTest, ALastResortServesOnlyTheDefaultPool) {
  heap.add_use({1, 0});
  heap.set_use_on_oom({1, 0}, true);
  const int route = heap.add_route({1, 0}, [](const Stream&) { return true; });
  void* const spare = allocate(12 * kMiB);
  free(spare);
  EXPECT_EQ(heap.allocate_last_resort(12 * kMiB, stream(0)), nullptr);
  heap.remove_route(route);
  EXPECT_EQ(heap.allocate_last_resort(12 * kMiB, stream(0)), spare);
}

TEST_F(CudaSegmentsTest, HistoryHasTheSizesThatWereRequested) {
  heap.history().configure({.enabled = true, .max_entries = 10});
  free(allocate(11 * kMiB + 3));
  const auto entries = heap.history().entries();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].bytes, 12 * kMiB);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(entries[i].bytes, 11 * kMiB + 3);
}

// --- Random programs ---

TEST_F(CudaSegmentsTest, AHeapStaysConsistent) {
  const unsigned seed = testing::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t from, std::size_t to) {
    return std::uniform_int_distribution<std::size_t>(from, to)(random);
  };
  std::vector<void*> held;
  for (int i = 0; i < 4000; ++i) {
    const auto what = pick(0, 99);
    if (what < 55) {
      const std::size_t sizes[] = {4096, kMiB, 9 * kMiB, 30 * kMiB};
      void* const block = allocate(pick(1, sizes[pick(0, 3)]), static_cast<int>(pick(0, 1)));
      if (block != nullptr) held.push_back(block);
    } else if (what < 96 && !held.empty()) {
      std::swap(held[pick(0, held.size() - 1)], held.back());
      free(held.back());
      held.pop_back();
    } else if (what < 98) {
      empty_cache();
    } else {
      policy.max_split_bytes = pick(0, 1) == 0 ? 21 * kMiB : ~std::size_t{0};
      use(pick(0, 1) == 0 ? Segments::kCuda : Segments::kCudaExpandable);
    }
    expect_consistent(heap, backing);
    if (HasFailure()) FAIL() << "in step " << i;
  }
}

}  // namespace
}  // namespace openreg::memory
