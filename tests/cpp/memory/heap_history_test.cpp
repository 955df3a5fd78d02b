// Heap: history.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "heap_checks.h"
#include "memory/heap.h"

namespace openreg::memory {

void PrintTo(Action action, std::ostream* out) { *out << static_cast<int>(action); }

namespace {

using namespace testing;

class HeapHistoryTest : public HeapTest {
 protected:
  void SetUp() override {
    heap.history().configure(
        {.enabled = true, .blocks = true, .allocations = true, .frees = true, .max_entries = 100});
  }
  using Entry = std::tuple<Action, void*, std::size_t>;
  std::vector<Entry> entries() {
    std::vector<Entry> result;
    for (const auto& entry : heap.history().entries()) {
      result.emplace_back(entry.action, reinterpret_cast<void*>(entry.address), entry.bytes);
    }
    heap.history().clear();
    return result;
  }
  using Entries = std::vector<Entry>;
  static Context context(int value) { return std::make_shared<int>(value); }
};

TEST_F(HeapHistoryTest, EachStepOfABlockIsRecorded) {
  void* block = allocate(1000);
  EXPECT_EQ(entries(),
            (Entries{{Action::kSegmentAlloc, block, 2 * kMiB}, {Action::kAlloc, block, 1024}}));
  heap.free(block);
  EXPECT_EQ(entries(), (Entries{{Action::kFreeRequested, block, 1024},
                                {Action::kFreeCompleted, block, 1024}}));
  allocate(1000);
  EXPECT_EQ(entries(), (Entries{{Action::kAlloc, block, 1024}}));
}

TEST_F(HeapHistoryTest, AnAnnotationIsOfAHeldBlock) {
  void* block = allocate(1000);
  const auto mine = context(1);
  heap.annotate(block, "mine", mine);
  const auto entry = heap.history().entries().back();
  EXPECT_EQ(entry.metadata, "mine");
  EXPECT_EQ(entry.context, mine);
  EXPECT_EQ(entry.stream, &stream(0));
  heap.free(block);
  heap.annotate(block, "freed", mine);
  heap.annotate(behind(block, 1), "no block begins here", mine);
  EXPECT_EQ(entries(), (Entries{{Action::kSegmentAlloc, block, 2 * kMiB},
                                {Action::kAlloc, block, 1024},
                                {Action::kAnnotate, block, 1024},
                                {Action::kFreeRequested, block, 1024},
                                {Action::kFreeCompleted, block, 1024}}));
}

TEST_F(HeapHistoryTest, AFreeIsCompletedWhenTheLastStreamIsDone) {
  void* block = allocate(1000);
  heap.record_stream(block, stream(1));
  heap.history().clear();
  heap.free(block);
  EXPECT_EQ(entries(), (Entries{{Action::kFreeRequested, block, 1024}}));
  backing.complete(0);
  heap.collect();
  EXPECT_EQ(entries(), (Entries{{Action::kFreeCompleted, block, 1024}}));
}

TEST_F(HeapHistoryTest, PartsOfASegmentThatComeAndGoAreRecordedApart) {
  void* a = allocate(2 * kMiB);
  heap.history().clear();
  void* b = allocate(4 * kMiB);
  EXPECT_EQ(entries(),
            (Entries{{Action::kSegmentMap, b, 4 * kMiB}, {Action::kAlloc, b, 4 * kMiB}}));
  heap.free(b);
  heap.history().clear();
  empty_cache();
  EXPECT_EQ(entries(), (Entries{{Action::kSegmentUnmap, b, 4 * kMiB}}));
  heap.free(a);
  heap.history().clear();
  empty_cache();
  EXPECT_EQ(entries(), (Entries{{Action::kSegmentFree, a, 2 * kMiB}}));
}

TEST_F(HeapHistoryTest, AFailureIsRecordedWithWhatTheDeviceHadFree) {
  heap.out_of_memory(5 * kMiB, 3 * kMiB, stream(1), context(1));
  EXPECT_EQ(statistics().out_of_memory, 1);
  const auto recorded = heap.history().entries();
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].action, Action::kOutOfMemory);
  EXPECT_EQ(recorded[0].address, 3 * kMiB);
  EXPECT_EQ(recorded[0].bytes, 5 * kMiB);
  EXPECT_EQ(recorded[0].stream, &stream(1));
  EXPECT_NE(recorded[0].context, nullptr);
}

TEST_F(HeapHistoryTest, EntriesNameStreamAndPool) {
  heap.add_route({3, 4}, [](const Stream&) { return true; });
  heap.free(allocate(512, 1));
  const auto recorded = heap.history().entries();
  ASSERT_EQ(recorded.size(), 4U);
  for (const auto& entry : recorded) {
    EXPECT_EQ(entry.stream, &stream(1));
    EXPECT_EQ(entry.pool, (PoolId{3, 4}));
  }
}

TEST_F(HeapHistoryTest, TheContextOfAHeldBlockIsKnownUntilItIsFree) {
  const Context mine = context(1);
  void* other = heap.allocate(512, stream(0), context(2));
  void* block = heap.allocate(512, stream(0), mine);
  EXPECT_EQ(heap.context_of(block), mine);
  EXPECT_NE(heap.context_of(other), mine);
  EXPECT_EQ(heap.context_of(behind(block, 1)), nullptr);
  EXPECT_EQ(heap.segments()[0].blocks[1].context, mine);
  heap.free(block);
  EXPECT_EQ(heap.context_of(block), nullptr);
  EXPECT_EQ(heap.segments()[0].blocks[1].context, nullptr);
  heap.history().clear();
  EXPECT_EQ(mine.use_count(), 1);
}

TEST_F(HeapHistoryTest, AFreeHasItsOwnContextOrElseThatOfItsAllocation) {
  const Context at_allocation = context(1);
  const Context at_free = context(2);
  for (const auto& given : {Context{}, at_free}) {
    void* block = heap.allocate(512, stream(0), at_allocation);
    heap.history().clear();
    heap.free(block, given);
    const auto recorded = heap.history().entries();
    ASSERT_EQ(recorded.size(), 2U);
    for (const auto& entry : recorded) {
      EXPECT_EQ(entry.context, given ? at_free : at_allocation);
    }
  }
}

TEST_F(HeapHistoryTest, BlocksKeepContextsOnlyWhereThatIsAskedFor) {
  heap.history().configure({.enabled = true, .allocations = true, .max_entries = 100});
  const Context mine = context(1);
  void* block = heap.allocate(512, stream(0), mine);
  EXPECT_EQ(heap.context_of(block), nullptr);
  EXPECT_EQ(heap.history().entries().back().context, mine);
  heap.history().configure({});
  EXPECT_EQ(heap.context_of(heap.allocate(512, stream(0), mine)), nullptr);
}

}  // namespace
}  // namespace openreg::memory
