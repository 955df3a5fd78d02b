// Heap: how segments grow, and how memory is returned to the device.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "heap_checks.h"
#include "memory/heap.h"

namespace openreg::memory {
namespace {

using namespace testing;

constexpr auto kLarge = SizeClass::kLarge;

class HeapSegmentsTest : public HeapTest {
 protected:
  // Addresses and sizes of the segments, in MiB from the first mapped address.
  std::vector<std::pair<std::size_t, std::size_t>> layout() {
    std::vector<std::pair<std::size_t, std::size_t>> result;
    for (const auto& segment : heap.segments()) {
      result.emplace_back((segment.address - reinterpret_cast<std::uintptr_t>(origin)) / kMiB,
                          segment.bytes / kMiB);
    }
    return result;
  }
  using Layout = std::vector<std::pair<std::size_t, std::size_t>>;
  // The same as allocate(), but remembers the address of the first block.
  void* at_origin(std::size_t bytes) { return origin = allocate(bytes); }

  void* origin = nullptr;
};

// --- Growing ---

TEST_F(HeapSegmentsTest, ASegmentGrowsByWhatIsMissing) {
  void* a = at_origin(3 * kMiB);  // 4 MiB mapped
  void* b = allocate(2 * kMiB);   // 1 MiB is available
  EXPECT_EQ(b, behind(a, 3 * kMiB));
  EXPECT_EQ(backing.maps, Sizes{4 * kMiB});
  EXPECT_EQ(backing.extensions, Sizes{2 * kMiB});
  EXPECT_EQ(layout(), (Layout{{0, 6}}));
  EXPECT_EQ(statistics().segment.current(), 1);
  EXPECT_EQ(statistics().reserved_bytes.of(kLarge), (Stat{6 * kMiB, 6 * kMiB, 6 * kMiB, 0}));
  EXPECT_EQ(statistics().device_maps, 2);
}

TEST_F(HeapSegmentsTest, AFreeBlockAtTheEndCountsTowardsWhatIsMissing) {
  at_origin(2 * kMiB);
  void* last = allocate(6 * kMiB);
  heap.free(last);
  EXPECT_EQ(allocate(10 * kMiB), last);
  EXPECT_EQ(backing.extensions, (Sizes{6 * kMiB, 4 * kMiB}));
  EXPECT_EQ(statistics().inactive_split.current(), 0);
}

TEST_F(HeapSegmentsTest, ASegmentGrowsByAllOfABlockBehindOneThatIsInUse) {
  void* a = at_origin(4 * kMiB);
  EXPECT_EQ(allocate(4 * kMiB), behind(a, 4 * kMiB));
  EXPECT_EQ(backing.extensions, Sizes{4 * kMiB});
}

TEST_F(HeapSegmentsTest, ABlockThatIsFreeOnItsWholeGrowsWithoutBeingCountedAsAPart) {
  void* a = at_origin(4 * kMiB);
  heap.free(a);
  EXPECT_EQ(allocate(7 * kMiB), a);
  EXPECT_EQ(layout(), (Layout{{0, 8}}));
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{1, 1, 1, 0}));  // the rest of 1 MiB
}

TEST_F(HeapSegmentsTest, SmallBlocksGrowToo) {
  void* a = at_origin(kMiB);
  allocate(kMiB);
  EXPECT_EQ(allocate(512), behind(a, 2 * kMiB));
  EXPECT_EQ(layout(), (Layout{{0, 4}}));
}

TEST_F(HeapSegmentsTest, WhereTheAddressesBehindAreTakenANewSegmentBegins) {
  backing.room_pages = 0;
  void* first = at_origin(2 * kMiB);
  allocate(2 * kMiB, 1);
  void* second = allocate(4 * kMiB);
  EXPECT_EQ(second, behind(first, 4 * kMiB));
  EXPECT_EQ(backing.maps, (Sizes{2 * kMiB, 2 * kMiB, 4 * kMiB}));
  EXPECT_EQ(statistics().segment.current(), 3);
  EXPECT_EQ(allocate(2 * kMiB), behind(second, 4 * kMiB));  // this segment grows from now on
  EXPECT_EQ(backing.extensions, Sizes{2 * kMiB});
}

TEST_F(HeapSegmentsTest, WhatAFailedExtensionFoundFreeStaysInTheCache) {
  void* block = at_origin(4 * kMiB);
  heap.free(block);
  backing.may_extend = false;
  EXPECT_NE(allocate(6 * kMiB), nullptr);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), block);
}

TEST_F(HeapSegmentsTest, NothingIsMappedAboveTheLimit) {
  heap.set_limit(8 * kMiB);
  void* block = at_origin(6 * kMiB);
  const auto before = describe(statistics());
  EXPECT_EQ(allocate(4 * kMiB), nullptr);
  EXPECT_EQ(allocate(4 * kMiB, 1), nullptr);
  EXPECT_EQ(describe(statistics()), before);
  EXPECT_EQ(backing.maps.size(), 1U);  // it made no request
  EXPECT_NE(allocate(2 * kMiB), nullptr);
  EXPECT_EQ(allocate(512), nullptr);
  heap.free(block);
  EXPECT_EQ(allocate(6 * kMiB), block);
}

TEST_F(HeapSegmentsTest, WithinTheLimitIsWhatAnExtensionAddsNotTheWholeBlock) {
  heap.set_limit(8 * kMiB);
  at_origin(2 * kMiB);
  void* last = allocate(4 * kMiB);
  heap.free(last);
  EXPECT_EQ(allocate(6 * kMiB), last);
  EXPECT_EQ(reserved(), 8 * kMiB);
}

TEST_F(HeapSegmentsTest, ALimitBelowWhatIsReservedOnlyStopsGrowth) {
  void* block = at_origin(8 * kMiB);
  heap.set_limit(4 * kMiB);
  EXPECT_EQ(allocate(512), nullptr);
  heap.free(block);
  EXPECT_EQ(allocate(8 * kMiB), block);
}

// --- Returning memory ---

TEST_F(HeapSegmentsTest, OnlyUnusedMemoryIsReleased) {
  void* held = allocate(512);
  heap.free(allocate(512));
  heap.free(allocate(4 * kMiB));
  const auto unused = heap.detach_unused();
  EXPECT_EQ(unused.size(), 1U);
  EXPECT_EQ(reserved(), 6 * kMiB);
  heap.release(unused);
  EXPECT_EQ(reserved(), 2 * kMiB);
  EXPECT_EQ(statistics().segment.of(kLarge).current, 0);
  EXPECT_EQ(statistics().device_unmaps, 1);
  heap.free(held);
  empty_cache();
  EXPECT_EQ(backing.mapped(), 0U);
  EXPECT_EQ(statistics().segment.all(), (Stat{0, 2, 2, 2}));
}

TEST_F(HeapSegmentsTest, TheMiddleOfASegmentGoesBackAndBothSidesStayUsable) {
  void* a = at_origin(4 * kMiB);
  void* b = allocate(4 * kMiB);
  void* c = allocate(4 * kMiB);
  heap.free(b);
  empty_cache();
  EXPECT_EQ(backing.unmaps, Sizes{4 * kMiB});
  EXPECT_EQ(layout(), (Layout{{0, 4}, {8, 4}}));
  EXPECT_EQ(statistics().segment.of(kLarge), (Stat{2, 2, 2, 0}));
  EXPECT_EQ(reserved(), 8 * kMiB);
  heap.free(c);
  heap.free(a);
  EXPECT_EQ(statistics().inactive_split.current(), 0);
  EXPECT_EQ(heap.allocate_cached(8 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), a);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), c);
}

TEST_F(HeapSegmentsTest, WhatIsLeftOfAPieceOnEachSideMergesWithLaterFrees) {
  void* a = at_origin(3 * kMiB);
  void* b = allocate(6 * kMiB);  // 3 to 9
  void* c = allocate(3 * kMiB);  // 9 to 12
  heap.free(b);
  empty_cache();
  EXPECT_EQ(backing.unmaps, Sizes{4 * kMiB});
  EXPECT_EQ(layout(), (Layout{{0, 4}, {8, 4}}));
  EXPECT_EQ(statistics().inactive_split.current(), 2);
  EXPECT_EQ(statistics().inactive_split_bytes.current(), signed_bytes(2 * kMiB));
  heap.free(a);
  EXPECT_EQ(statistics().inactive_split.current(), 1);
  heap.free(c);
  EXPECT_EQ(statistics().inactive_split.current(), 0);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), a);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), behind(b, 5 * kMiB));
}

TEST_F(HeapSegmentsTest, UnusedAreWholePiecesAndWhatOtherStreamsAreNotDoneWith) {
  at_origin(3 * kMiB);
  void* b = allocate(6 * kMiB);  // 3 to 9, of 10
  EXPECT_EQ(heap.unused_bytes(), 0U);
  heap.record_stream(b, stream(1));
  heap.free(b);
  EXPECT_EQ(heap.unused_bytes(), 6 * kMiB);
  backing.complete(stream(1));
  heap.collect();
  EXPECT_EQ(heap.unused_bytes(), 6 * kMiB);  // 4 to 10
  heap.release(heap.detach_unused());
  EXPECT_EQ(heap.unused_bytes(), 0U);
}

TEST_F(HeapSegmentsTest, AnAllocationSaysHowMuchItWouldMap) {
  EXPECT_EQ(heap.bytes_to_map(3 * kMiB, stream(0)), 4 * kMiB);
  allocate(3 * kMiB);
  for (const std::size_t bytes : {2 * kMiB, 5 * kMiB, 7 * kMiB}) {
    const auto before = backing.mapped();
    const auto expected = heap.bytes_to_map(bytes, stream(0));
    void* const block = heap.allocate(bytes, stream(0));
    EXPECT_EQ(backing.mapped() - before, expected);
    heap.free(block);
  }
}

TEST_F(HeapSegmentsTest, WhatHasNoWholePieceStaysAsItWas) {
  at_origin(3 * kMiB);
  void* b = allocate(2 * kMiB);  // 3 to 5
  allocate(3 * kMiB);
  heap.free(b);
  const auto before = describe(statistics());
  EXPECT_TRUE(heap.detach_unused().empty());
  EXPECT_EQ(describe(statistics()), before);
  EXPECT_EQ(heap.allocate_cached(2 * kMiB, stream(0)), b);
}

TEST_F(HeapSegmentsTest, ABlockThatIsAloneAfterACutIsNoPartOfASegmentAnyMore) {
  void* a = at_origin(2 * kMiB);
  void* b = allocate(2 * kMiB);
  void* c = allocate(2 * kMiB);
  heap.free(b);
  const auto pieces = heap.detach_unused();
  heap.free(a);
  heap.free(c);
  EXPECT_EQ(statistics().inactive_split.current(), 2);
  heap.release(pieces);
  EXPECT_EQ(statistics().inactive_split.current(), 0);
  EXPECT_EQ(statistics().inactive_split_bytes.current(), 0);
}

TEST_F(HeapSegmentsTest, TheBeginOfASegmentGoesBack) {
  void* a = at_origin(2 * kMiB);
  void* b = allocate(2 * kMiB);
  heap.free(a);
  empty_cache();
  EXPECT_EQ(layout(), (Layout{{2, 2}}));
  EXPECT_EQ(statistics().segment.current(), 1);
  EXPECT_EQ(allocate(2 * kMiB), behind(b, 2 * kMiB));  // it still grows
  EXPECT_EQ(backing.maps.size(), 1U);
}

TEST_F(HeapSegmentsTest, ASegmentGrowsAgainWhereItsEndHasGoneBack) {
  at_origin(2 * kMiB);
  void* last = allocate(4 * kMiB);
  heap.free(last);
  empty_cache();
  EXPECT_EQ(layout(), (Layout{{0, 2}}));
  EXPECT_EQ(allocate(4 * kMiB), last);
  EXPECT_EQ(backing.maps.size(), 1U);
}

TEST_F(HeapSegmentsTest, OfASegmentThatWasCutTheLastPartGrows) {
  at_origin(2 * kMiB);
  void* middle = allocate(2 * kMiB);
  void* last = allocate(2 * kMiB);
  heap.free(middle);
  empty_cache();
  EXPECT_EQ(allocate(4 * kMiB), behind(last, 2 * kMiB));
}

TEST_F(HeapSegmentsTest, AfterAllOfASegmentHasGoneANewOneBegins) {
  heap.free(at_origin(2 * kMiB));
  empty_cache();
  EXPECT_EQ(backing.mapped(), 0U);
  EXPECT_NE(allocate(2 * kMiB), nullptr);
  EXPECT_EQ(backing.maps.size(), 2U);
}

TEST_F(HeapSegmentsTest, DetachedMemoryIsNotHandedOutUntilItIsRestored) {
  void* block = at_origin(4 * kMiB);
  heap.free(block);
  const auto unused = heap.detach_unused();
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  EXPECT_TRUE(heap.detach_unused().empty());
  EXPECT_EQ(reserved(), 4 * kMiB);
  EXPECT_EQ(allocate(4 * kMiB), behind(block, 4 * kMiB));
  heap.restore(unused);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), block);
}

TEST_F(HeapSegmentsTest, RestoredMemoryMergesWithWhatWasFreedMeanwhile) {
  void* a = at_origin(3 * kMiB);
  void* b = allocate(6 * kMiB);
  void* c = allocate(3 * kMiB);
  heap.free(b);
  const auto pieces = heap.detach_unused();
  heap.free(a);
  heap.free(c);
  EXPECT_EQ(heap.allocate_cached(8 * kMiB, stream(0)), nullptr);
  heap.restore(pieces);
  EXPECT_EQ(statistics().inactive_split.current(), 0);
  EXPECT_EQ(heap.allocate_cached(12 * kMiB, stream(0)), a);
}

TEST_F(HeapSegmentsTest, NeighbouringPiecesOfTwoDetachesGoTheirOwnWays) {
  void* a = at_origin(2 * kMiB);
  void* b = allocate(2 * kMiB);
  void* c = allocate(2 * kMiB);
  void* d = allocate(2 * kMiB);
  heap.free(b);
  const auto first = heap.detach_unused();
  heap.free(c);
  const auto second = heap.detach_unused();
  heap.release(first);
  EXPECT_EQ(layout(), (Layout{{0, 2}, {4, 4}}));
  heap.restore(second);
  heap.free(d);
  heap.free(a);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), c);
  EXPECT_EQ(heap.allocate_cached(2 * kMiB, stream(0)), a);
}

TEST_F(HeapSegmentsTest, ASegmentGrowsBehindAPieceThatIsOnItsWay) {
  at_origin(2 * kMiB);
  void* b = allocate(2 * kMiB);
  heap.free(b);
  const auto pieces = heap.detach_unused();
  void* c = allocate(2 * kMiB);
  EXPECT_EQ(c, behind(b, 2 * kMiB));
  heap.release(pieces);
  EXPECT_EQ(layout(), (Layout{{0, 2}, {4, 2}}));
  EXPECT_EQ(allocate(2 * kMiB), behind(c, 2 * kMiB));
}

}  // namespace
}  // namespace openreg::memory
