// Heap: checkpoints of private pools.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "heap_checks.h"
#include "memory/heap.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using openreg::testing::contains;
using namespace testing;

class HeapCheckpointsTest : public HeapTest {
 protected:
  static constexpr PoolId kPool{1, 0};

  HeapCheckpointsTest() { begin(); }

  // Allocations come from the pool.
  void begin() {
    route_ = heap.add_route(kPool, [](const Stream&) { return true; });
  }
  void end() { heap.remove_route(route_); }

  std::vector<void*> held() {
    std::vector<void*> result;
    for (const auto& block : heap.checkpoint(kPool).blocks) result.push_back(block.address);
    return result;
  }
  void expect_refused(const Checkpoint& checkpoint, const char* reason) {
    const auto before = describe(statistics());
    EXPECT_PRED2(contains, error_of([&] { heap.restore_checkpoint(checkpoint); }), reason);
    EXPECT_EQ(describe(statistics()), before);
  }

 private:
  int route_ = 0;
};

TEST_F(HeapCheckpointsTest, BlocksThatHaveBeenFreedAreHeldAgain) {
  void* a = allocate(512);
  void* b = allocate(1024);
  void* large = allocate(4 * kMiB);
  const auto checkpoint = heap.checkpoint(kPool);
  for (void* each : {a, b, large}) heap.free(each);
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(held(), (std::vector<void*>{a, b, large}));
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(512 + 1024 + 4 * kMiB));
  EXPECT_EQ(heap.allocate_cached(512, stream(0)), behind(b, 1024));
  heap.free(b);
  EXPECT_EQ(heap.allocate_cached(1024, stream(0)), b);
}

TEST_F(HeapCheckpointsTest, ABlockIsCutOutOfAFreeOneThatHasGrown) {
  void* a = allocate(512);
  void* b = allocate(512);
  void* c = allocate(512);
  heap.free(a);
  heap.free(c);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(b);  // all three are one block
  void* other = heap.allocate_cached(1536, stream(0));
  EXPECT_EQ(other, a);
  heap.free(other);
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(held(), std::vector<void*>{b});
  EXPECT_EQ(heap.allocate_cached(512, stream(0)), a);
  EXPECT_EQ(heap.allocate_cached(512, stream(0)), c);
}

TEST_F(HeapCheckpointsTest, BlocksThatAreStillHeldStayAsTheyAre) {
  void* a = allocate(512);
  void* b = allocate(512);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(a);
  heap.record_stream(b, stream(1));
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(held(), (std::vector<void*>{a, b}));
  EXPECT_EQ(heap.streams_of(b), (std::vector<Stream*>{&stream(1), &stream(0)}));
  EXPECT_EQ(statistics().allocation.current(), 2);
}

TEST_F(HeapCheckpointsTest, StreamsAndContextsOfABlockAreThoseOfTheCheckpoint) {
  heap.history().configure({.enabled = true, .blocks = true});
  const auto context = std::make_shared<int>(1);
  void* block = heap.allocate(512, stream(0), context);
  heap.record_stream(block, stream(1));
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(block);
  backing.complete(stream(1));
  heap.collect();
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(heap.streams_of(block), (std::vector<Stream*>{&stream(1), &stream(0)}));
  EXPECT_EQ(heap.context_of(block), context);
}

TEST_F(HeapCheckpointsTest, ACheckpointIsOfOnePool) {
  end();
  void* outside = allocate(512);
  begin();
  void* inside = allocate(512);
  const auto checkpoint = heap.checkpoint(kPool);
  EXPECT_EQ(held(), std::vector<void*>{inside});
  EXPECT_TRUE(heap.checkpoint({2, 0}).blocks.empty());
  heap.free(outside);
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(statistics().allocation.current(), 1);
}

TEST_F(HeapCheckpointsTest, AnEmptyCheckpointExpectsAnEmptyPool) {
  const auto checkpoint = heap.checkpoint(kPool);
  void* block = allocate(512);
  expect_refused(checkpoint, "has been allocated since");
  heap.free(block);
  heap.restore_checkpoint(checkpoint);
  EXPECT_TRUE(held().empty());
}

TEST_F(HeapCheckpointsTest, AnotherBlockAtTheSameAddressIsRefused) {
  void* block = allocate(512);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(block);
  EXPECT_EQ(allocate(1024), block);
  expect_refused(checkpoint, "has been allocated since");
}

TEST_F(HeapCheckpointsTest, ABlockThatAnotherStreamStillUsesIsRefused) {
  void* block = allocate(512);
  void* other = allocate(512);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.record_stream(block, stream(1));
  heap.free(block);
  heap.free(other);
  expect_refused(checkpoint, "is not free");
  backing.complete(stream(1));
  heap.collect();
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(held(), (std::vector<void*>{block, other}));
}

TEST_F(HeapCheckpointsTest, APoolThatHasGivenItsMemoryBackIsRefused) {
  heap.free(allocate(4 * kMiB));
  void* block = allocate(4 * kMiB);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(block);
  end();
  empty_cache();
  expect_refused(checkpoint, "there is no such memory pool");
  begin();
  expect_refused(checkpoint, "is not free");
}

TEST_F(HeapCheckpointsTest, AnOversizeBlockAndAWholeSegmentAreHeldAgain) {
  heap.set_policy({.max_split_bytes = 20 * kMiB});
  void* oversize = allocate(24 * kMiB);
  heap.set_no_split(kPool, true);
  void* whole = allocate(512);
  const auto checkpoint = heap.checkpoint(kPool);
  heap.free(oversize);
  heap.free(whole);
  heap.restore_checkpoint(checkpoint);
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(26 * kMiB));
  EXPECT_EQ(statistics().oversize_allocations.current(), 1);
}

// A tree of graphs: any checkpoint can follow any other, whatever has been allocated in between.
TEST_F(HeapCheckpointsTest, AnySequenceOfCheckpointsKeepsTheHeapConsistent) {
  std::mt19937 random(testing::seed());
  std::vector<Checkpoint> checkpoints;
  const auto pick = [&](std::size_t count) { return random() % count; };
  const auto free_all = [&] {
    for (void* each : held()) heap.free(each);
  };
  for (int round = 0; round < 200; ++round) {
    for (std::size_t i = pick(8); i > 0; --i) {
      allocate(std::size_t{512} << pick(13), static_cast<int>(pick(2)));
      if (auto blocks = held(); pick(2) == 0) heap.free(blocks[pick(blocks.size())]);
    }
    checkpoints.push_back(heap.checkpoint(kPool));
    free_all();
    const auto& chosen = checkpoints[pick(checkpoints.size())];
    heap.restore_checkpoint(chosen);
    expect_consistent(heap, backing);
    ASSERT_EQ(held().size(), chosen.blocks.size());
    if (pick(2) == 0) free_all();
  }
}

}  // namespace
}  // namespace openreg::memory
