#include "memory/heap.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "heap_checks.h"

namespace openreg::memory {
namespace {

using namespace testing;

constexpr auto kSmall = SizeClass::kSmall;
constexpr auto kLarge = SizeClass::kLarge;
constexpr std::size_t kLargest = std::numeric_limits<std::size_t>::max();

// --- Where a block lies ---

TEST_F(HeapTest, FreedMemoryIsReusedAtOnceByItsOwnStream) {
  void* first = allocate(1000);
  heap.free(first);
  EXPECT_EQ(allocate(1000), first);
  EXPECT_EQ(backing.maps, Sizes{2 * kMiB});
}

TEST_F(HeapTest, FreedMemoryIsNotReusedByAnotherStream) {
  void* first = allocate(1000, 0);
  heap.free(first);
  EXPECT_EQ(heap.allocate_cached(1000, stream(1)), nullptr);
  EXPECT_NE(allocate(1000, 1), first);
  EXPECT_EQ(backing.maps.size(), 2U);
}

TEST_F(HeapTest, SmallBlocksShareASegmentInSteps) {
  void* a = allocate(1);
  void* b = allocate(513);
  void* c = allocate(512);
  EXPECT_EQ(b, behind(a, 512));
  EXPECT_EQ(c, behind(b, 1024));
  EXPECT_EQ(backing.maps, Sizes{2 * kMiB});
}

TEST_F(HeapTest, SmallAndLargeBlocksDoNotShare) {
  void* small = allocate(kMiB);
  void* large = allocate(kMiB + 1);
  EXPECT_EQ(backing.maps, (Sizes{2 * kMiB, 2 * kMiB}));
  heap.free(large);
  EXPECT_EQ(allocate(kMiB), behind(small, kMiB));
  EXPECT_EQ(allocate(kMiB + 1), large);
}

TEST_F(HeapTest, TheBestFitIsTaken) {
  void* large = allocate(8 * kMiB);
  allocate(2 * kMiB);
  void* fit = allocate(4 * kMiB);
  allocate(2 * kMiB);
  heap.free(large);
  heap.free(fit);
  EXPECT_EQ(allocate(4 * kMiB), fit);
  EXPECT_EQ(allocate(4 * kMiB), large);
}

TEST_F(HeapTest, TheRestOfABlockIsKept) {
  void* large = allocate(8 * kMiB);
  heap.free(large);
  EXPECT_EQ(allocate(3 * kMiB), large);
  EXPECT_EQ(allocate(3 * kMiB), behind(large, 3 * kMiB));
  EXPECT_EQ(backing.mapped(), 8 * kMiB);
}

TEST_F(HeapTest, NothingComesFromTheDeviceWhereTheCacheIsAskedFor) {
  EXPECT_EQ(heap.allocate_cached(512, stream(0)), nullptr);
  EXPECT_TRUE(backing.maps.empty());
  void* block = allocate(512);
  EXPECT_EQ(heap.allocate_cached(512, stream(0)), behind(block, 512));
}

TEST_F(HeapTest, NeighboursMergeWhateverTheOrderOfTheirFrees) {
  for (const auto& order :
       std::vector<std::vector<std::size_t>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    FakeBacking fresh;
    Heap merging(fresh);
    void* blocks[] = {merging.allocate(kMiB / 2, stream(0)), merging.allocate(kMiB / 2, stream(0)),
                      merging.allocate(kMiB, stream(0))};
    for (const std::size_t i : order) merging.free(blocks[i]);
    EXPECT_EQ(merging.statistics().inactive_split.current(), 0);
    testing::expect_consistent(merging, fresh);
    EXPECT_EQ(merging.allocate_cached(kMiB, stream(0)), blocks[0]);
  }
}

// --- Blocks that several streams use ---

TEST_F(HeapTest, ABlockThatAnotherStreamUsedWaitsForItsMark) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(1));
  EXPECT_TRUE(backing.events.empty());
  heap.free(block);
  ASSERT_EQ(backing.events.size(), 1U);
  EXPECT_EQ(backing.events[0].stream, &stream(1));
  EXPECT_NE(allocate(1000, 0), block);
  EXPECT_EQ(statistics().active.current(), 2);
  EXPECT_EQ(statistics().allocation.current(), 1);
  backing.complete(0);
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(HeapTest, ABlockThatTwoStreamsUsedWaitsForBoth) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(1));
  heap.record_stream(block, stream(2));
  heap.record_stream(block, stream(1));
  heap.free(block);
  ASSERT_EQ(backing.events.size(), 2U);
  backing.complete(1);
  EXPECT_NE(allocate(1000, 0), block);
  backing.complete(0);
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(HeapTest, AHeldPendingBlockIsNotReusedAfterItsMark) {
  void* block = allocate(1000, 0);
  EXPECT_EQ(heap.hold_pending(block), nullptr);  // the program has it
  heap.record_stream(block, stream(1));
  heap.free(block);
  auto* const held = heap.hold_pending(block);
  ASSERT_NE(held, nullptr);
  backing.complete(0);
  EXPECT_NE(allocate(1000, 0), block);
  EXPECT_EQ(statistics().active.current(), 2);
  heap.release_pending(*held);
  EXPECT_EQ(heap.hold_pending(block), nullptr);
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(HeapTest, APendingBlockMayBeHeldUntilBeforeItsMark) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(1));
  heap.free(block);
  heap.release_pending(*heap.hold_pending(block));
  EXPECT_NE(allocate(1000, 0), block);
  backing.complete(0);
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(HeapTest, TheStreamsOfABlockAreItsOwnAndThoseThatWereRecorded) {
  void* block = allocate(1000, 0);
  EXPECT_EQ(heap.streams_of(block), std::vector{&stream(0)});
  heap.record_stream(block, stream(1));
  heap.record_stream(block, stream(0));
  EXPECT_EQ(heap.streams_of(block), (std::vector{&stream(1), &stream(0)}));
  heap.free(block);
  EXPECT_THROW(heap.streams_of(block), Error);
}

TEST_F(HeapTest, APendingBlockIsNeitherMergedNorGivenBack) {
  void* left = allocate(2 * kMiB);
  void* pending = allocate(2 * kMiB);
  heap.record_stream(pending, stream(1));
  heap.free(pending);
  heap.free(left);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  empty_cache();
  EXPECT_EQ(backing.unmaps, Sizes{2 * kMiB});
  backing.complete(0);
  EXPECT_EQ(heap.allocate_cached(2 * kMiB, stream(0)), pending);
}

TEST_F(HeapTest, CollectingMakesBlocksAvailableWithoutAnAllocation) {
  void* block = allocate(4 * kMiB);
  heap.record_stream(block, stream(1));
  heap.free(block);
  heap.collect();
  EXPECT_EQ(statistics().active.current(), 1);
  backing.complete(0);
  heap.collect();
  EXPECT_EQ(statistics().active.current(), 0);
  empty_cache();
  EXPECT_EQ(backing.mapped(), 0U);
}

TEST_F(HeapTest, RecordingTheOwnStreamCostsNothing) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(0));
  heap.free(block);
  EXPECT_TRUE(backing.events.empty());
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(HeapTest, UsersAreForgottenWithTheBlock) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(1));
  heap.free(block);
  backing.complete(0);
  ASSERT_EQ(allocate(1000, 0), block);
  heap.free(block);
  EXPECT_EQ(backing.events.size(), 1U);
}

TEST_F(HeapTest, AFreeWhoseMarkFailsLeavesTheBlockHeld) {
  void* block = allocate(1000, 0);
  heap.record_stream(block, stream(1));
  backing.records_throw = true;
  const auto before = describe(statistics());
  EXPECT_THROW(heap.free(block), std::runtime_error);
  EXPECT_EQ(describe(statistics()), before);
  backing.records_throw = false;
  EXPECT_EQ(heap.free(block), 1024U);
  EXPECT_EQ(backing.events.size(), 1U);
}

// --- Statistics ---

TEST_F(HeapTest, StatisticsCountBlocksAndBytesByClass) {
  void* small = allocate(100);
  void* large = allocate(3 * kMiB);
  EXPECT_EQ(statistics().allocation.current(), 2);
  EXPECT_EQ(statistics().allocation.of(kSmall).current, 1);
  EXPECT_EQ(statistics().allocation.of(kLarge).current, 1);
  EXPECT_EQ(statistics().requested_bytes.of(kSmall).current, 100);
  EXPECT_EQ(statistics().allocated_bytes.of(kSmall).current, 512);
  EXPECT_EQ(statistics().allocated_bytes.of(kLarge).current, signed_bytes(3 * kMiB));
  EXPECT_EQ(statistics().inactive_split_bytes.of(kSmall).current, signed_bytes(2 * kMiB - 512));
  EXPECT_EQ(statistics().segment.of(kSmall).current, 1);
  EXPECT_EQ(statistics().segment.of(kLarge).current, 1);
  heap.free(small);
  EXPECT_EQ(statistics().inactive_split.of(kSmall).current, 0);
  EXPECT_EQ(statistics().inactive_split.of(kLarge).current, 1);
  EXPECT_EQ(statistics().requested_bytes.current(), signed_bytes(3 * kMiB));
  heap.free(large);
  EXPECT_EQ(statistics().active_bytes.current(), 0);
  EXPECT_EQ(statistics().allocated_bytes.all().freed, signed_bytes(3 * kMiB + 512));
  EXPECT_EQ(statistics().reserved_bytes.current(), signed_bytes(6 * kMiB));
}

// Freeing the middle one of three blocks joins it with two free ones: there is one free block less,
// and there are never three.
TEST_F(HeapTest, JoiningBlocksIsOneChangeOfWhatIsInactive) {
  void* a = allocate(512);
  void* b = allocate(512);
  allocate(512);
  heap.free(a);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{2, 2, 2, 0}));
  heap.free(b);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{2, 2, 2, 0}));
  EXPECT_EQ(statistics().inactive_split_bytes.all().current, signed_bytes(2 * kMiB - 512));
  EXPECT_EQ(statistics().inactive_split_bytes.all().peak, signed_bytes(2 * kMiB - 512));
}

TEST_F(HeapTest, FreeingBetweenFreeBlocksLeavesOneLess) {
  void* a = allocate(512);
  void* b = allocate(512);
  void* c = allocate(512);
  allocate(512);
  heap.free(a);
  heap.free(c);
  ASSERT_EQ(statistics().inactive_split.all(), (Stat{3, 3, 3, 0}));
  heap.free(b);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{2, 3, 3, 1}));
}

TEST_F(HeapTest, TakingAPartOfABlockIsOneChangeOfWhatIsInactive) {
  allocate(512);
  statistics().reset_accumulated();
  allocate(1024);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{1, 1, 0, 0}));
  EXPECT_EQ(statistics().inactive_split_bytes.all().allocated, 0);
  EXPECT_EQ(statistics().inactive_split_bytes.all().freed, 1024);
  allocate(kMiB);
  EXPECT_NE(heap.allocate_cached(kMiB - 1536, stream(0)), nullptr);
  EXPECT_EQ(statistics().inactive_split.all(), (Stat{0, 1, 0, 1}));
}

TEST_F(HeapTest, AFailedAllocationChangesNothing) {
  void* block = allocate(60 * kMiB);
  const auto before = describe(statistics());
  EXPECT_EQ(allocate(8 * kMiB), nullptr);
  for (const std::size_t less : {std::size_t{0}, kMiB, 3 * kMiB, kLargest / 2, kLargest / 4 * 3}) {
    EXPECT_EQ(allocate(kLargest - less), nullptr) << less;
    EXPECT_EQ(heap.allocate_cached(kLargest - less, stream(0)), nullptr) << less;
    EXPECT_EQ(heap.allocate_last_resort(kLargest - less, stream(0)), nullptr) << less;
  }
  EXPECT_EQ(describe(statistics()), before);
  heap.free(block);
  EXPECT_EQ(allocate(8 * kMiB), block);
}

// --- Wrong addresses ---

TEST_F(HeapTest, AnAddressThatBeginsNoHeldBlockIsRefusedAndNothingChanges) {
  void* held = allocate(1024);
  void* freed = allocate(1024);
  void* pending = allocate(1024);
  void* large = allocate(5 * kMiB);
  heap.record_stream(pending, stream(1));
  heap.free(pending);
  heap.free(freed);
  int foreign = 0;
  const auto before = describe(statistics());
  for (void* wrong : {static_cast<void*>(nullptr), static_cast<void*>(&foreign), behind(held, 1),
                      behind(held, 512), behind(held, 1023), behind(large, 2 * kMiB), freed,
                      pending, behind(large, 5 * kMiB), behind(large, std::size_t{1} << 40)}) {
    const auto what = "openreg: invalid device pointer (got " +
                      std::to_string(reinterpret_cast<std::uintptr_t>(wrong)) +
                      ", expected the address of a block in use); it may have been freed already, "
                      "or belong to another allocator";
    EXPECT_EQ(testing::error_of([&] { heap.free(wrong); }), what);
    EXPECT_EQ(testing::error_of([&] { heap.record_stream(wrong, stream(1)); }), what);
    EXPECT_EQ(heap.context_of(wrong), nullptr);
  }
  EXPECT_EQ(describe(statistics()), before);
  EXPECT_EQ(heap.free(held), 1024U);
  EXPECT_EQ(heap.free(large), 5 * kMiB);
}

TEST_F(HeapTest, AHeapWithoutMemoryRefusesAllAddresses) {
  EXPECT_THROW(heap.free(nullptr), Error);
  EXPECT_THROW(heap.free(this), Error);
}

// --- Segments and contexts ---

TEST_F(HeapTest, SegmentsAreShownWithTheirBlocksInOrder) {
  void* a = allocate(100, 1);
  void* b = allocate(600, 1);
  void* c = allocate(512, 1);
  heap.record_stream(b, stream(2));
  heap.free(b);
  heap.free(a);
  const auto segments = heap.segments();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].address, reinterpret_cast<std::uintptr_t>(a));
  EXPECT_EQ(segments[0].bytes, 2 * kMiB);
  EXPECT_EQ(segments[0].stream, &stream(1));
  EXPECT_EQ(segments[0].size_class, kSmall);
  EXPECT_EQ(segments[0].pool, PoolId{});
  struct Expected {
    void* address;
    std::size_t bytes;
    std::size_t requested;
    Block::State state;
  };
  using State = Block::State;
  const std::vector<Expected> expected{{a, 512, 0, State::kFree},
                                       {b, 1024, 600, State::kPending},
                                       {c, 512, 512, State::kHeld},
                                       {behind(c, 512), 2 * kMiB - 2048, 0, State::kFree}};
  ASSERT_EQ(segments[0].blocks.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& block = segments[0].blocks[i];
    EXPECT_EQ(block.address, reinterpret_cast<std::uintptr_t>(expected[i].address));
    EXPECT_EQ(block.bytes, expected[i].bytes);
    EXPECT_EQ(block.requested, expected[i].requested);
    EXPECT_EQ(block.state, expected[i].state);
  }
}

}  // namespace
}  // namespace openreg::memory
