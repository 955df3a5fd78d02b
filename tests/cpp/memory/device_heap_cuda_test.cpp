// DeviceHeap: what it does by CUDA's rules when memory runs out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <future>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "memory/device_heap.h"
#include "runtime/capture.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

constexpr std::size_t kMiB = std::size_t{1} << 20;  // main() makes a device of 64

class DeviceHeapCudaTest : public ::testing::Test {
 protected:
  DeviceHeapCudaTest() { use({.segments = Segments::kCuda}); }
  // Each test frees what it allocates, so all memory can be returned.
  void TearDown() override {
    set_free_memory_callback(nullptr);
    heap.empty_cache();
    EXPECT_EQ(AddressSpace::get().mapped(0), 0U);
    EXPECT_EQ(reserved(), 0U);
  }

  void use(const Policy& policy) {
    heap.locked([&](Heap& inner) { inner.set_policy(policy); });
  }
  void* allocate(std::size_t bytes, Stream& stream) { return heap.allocate(bytes, stream).address; }
  void cache(std::size_t bytes, Stream& stream) { heap.free(allocate(bytes, stream)); }
  Statistics statistics() {
    return heap.locked([](Heap& inner) { return inner.statistics(); });
  }
  std::size_t reserved() { return static_cast<std::size_t>(statistics().reserved_bytes.current()); }

  DeviceHeap heap{0};
  OwnStream first;
  OwnStream second;
};

TEST_F(DeviceHeapCudaTest, TheCacheMakesRoomAndTheRetryIsCounted) {
  cache(40 * kMiB, *first);
  void* const block = allocate(30 * kMiB, *second);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(reserved(), 30 * kMiB);
  EXPECT_EQ(statistics().retries, 1);
  EXPECT_EQ(statistics().synchronizations, 1);
  heap.free(block);
}

TEST_F(DeviceHeapCudaTest, AFailureReportsTheSegmentThatHasNoRoom) {
  void* const block = allocate(60 * kMiB, *first);
  const auto failed = heap.allocate(3 * kMiB, *first);
  EXPECT_EQ(failed.address, nullptr);
  EXPECT_EQ(failed.segment, 20 * kMiB);
  EXPECT_EQ(failed.of, DeviceHeap::Shortage::kDevice);
  EXPECT_EQ(statistics().retries, 1);
  EXPECT_EQ(statistics().out_of_memory, 1);
  heap.free(block);
}

TEST_F(DeviceHeapCudaTest, AFractionLimitsWhatIsReserved) {
  heap.set_fraction(0.5);
  void* const block = allocate(14 * kMiB, *first);
  EXPECT_EQ(allocate(3 * kMiB, *first), nullptr);
  void* const small = allocate(kMiB, *first);
  EXPECT_NE(small, nullptr);
  heap.free(small);
  heap.free(block);
}

TEST_F(DeviceHeapCudaTest, GarbageIsCollectedOnlyBelowAFraction) {
  use({.segments = Segments::kCuda, .garbage_collection_threshold = 0.5});
  cache(40 * kMiB, *first);
  cache(12 * kMiB, *second);
  EXPECT_EQ(reserved(), 52 * kMiB);
  heap.set_fraction(0.9);
  void* const block = allocate(14 * kMiB, *second);
  EXPECT_LT(reserved(), 40 * kMiB);
  EXPECT_EQ(statistics().retries, 0);
  heap.free(block);
}

TEST_F(DeviceHeapCudaTest, AnOversizeBlockMakesRoomWithoutARetry) {
  use({.segments = Segments::kCuda,
       .max_split_bytes = 24 * kMiB,
       .max_non_split_rounding = 2 * kMiB});
  cache(44 * kMiB, *first);
  void* const block = allocate(26 * kMiB, *first);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(reserved(), 26 * kMiB);
  EXPECT_EQ(statistics().retries, 0);
  heap.free(block);
}

// 26 MiB are less than 40, though there is room for the rest.
TEST_F(DeviceHeapCudaTest, OversizeBlocksThatAreTooSmallAreReturnedAndARetryFollows) {
  use({.segments = Segments::kCuda, .max_split_bytes = 24 * kMiB});
  cache(26 * kMiB, *first);
  void* const block = allocate(40 * kMiB, *first);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(statistics().retries, 1);
  heap.free(block);
}

TEST_F(DeviceHeapCudaTest, APoolForTheLastResortServesBeforeTheCacheIsReturned) {
  const PoolId pool{1, 0};
  const int route = heap.locked([&](Heap& inner) {
    inner.add_use(pool);
    inner.set_use_on_oom(pool, true);
    return inner.add_route(pool, [](const Stream&) { return true; });
  });
  void* const spare = allocate(12 * kMiB, *first);
  heap.free(spare);
  heap.locked([&](Heap& inner) { inner.remove_route(route); });
  cache(50 * kMiB, *second);
  EXPECT_EQ(allocate(12 * kMiB, *first), spare);
  EXPECT_EQ(reserved(), 62 * kMiB);
  EXPECT_EQ(statistics().retries, 0);
  heap.free(spare);
  heap.locked([&](Heap& inner) { inner.remove_use(pool); });
}

std::promise<void>* g_missed = nullptr;

// PyTorch's allocator does not look into its cache again after the wait.
TEST_F(DeviceHeapCudaTest, WhatBecomesFreeDuringTheWaitIsNotUsedIfItCannotBeReturned) {
  void* const a = allocate(9 * kMiB, *first);
  void* const b = allocate(9 * kMiB, *first);
  void* const c = allocate(44 * kMiB, *first);
  Blocker blocker(*second);
  heap.record_stream(a, *second);
  heap.free(a);
  std::promise<void> missed;
  g_missed = &missed;
  set_free_memory_callback([](int) {
    g_missed->set_value();
    return false;
  });
  auto block = std::async(std::launch::async, [&] { return allocate(9 * kMiB, *first); });
  missed.get_future().wait();
  blocker.open();
  EXPECT_EQ(block.get(), nullptr);
  set_free_memory_callback(nullptr);
  EXPECT_EQ(allocate(9 * kMiB, *first), a);
  for (void* held : {a, b, c}) heap.free(held);
}

TEST_F(DeviceHeapCudaTest, WhileAGraphIsCapturedTheCacheIsKept) {
  cache(40 * kMiB, *second);
  begin_capture(*first, CaptureMode::kRelaxed);
  EXPECT_EQ(allocate(30 * kMiB, *first), nullptr);
  static_cast<void>(end_capture(*first));
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(statistics().retries, 0);
  EXPECT_EQ(statistics().out_of_memory, 1);
}

TEST_F(DeviceHeapCudaTest, ExpandableSegmentsGrowInPlaceAndReturnTheirPages) {
  use({.segments = Segments::kCudaExpandable});
  auto* const a = static_cast<std::byte*>(allocate(30 * kMiB, *first));
  void* const b = allocate(10 * kMiB, *first);
  EXPECT_EQ(b, a + 30 * kMiB);
  EXPECT_EQ(AddressSpace::get().mapped(0), 40 * kMiB);
  heap.free(a);
  heap.empty_cache();
  EXPECT_EQ(reserved(), 20 * kMiB);
  EXPECT_EQ(allocate(25 * kMiB, *first), a);
  EXPECT_EQ(reserved(), 40 * kMiB);
  heap.free(a);
  heap.free(b);
}

TEST_F(DeviceHeapCudaTest, ManyStreamsHaveExpandableSegments) {
  use({.segments = Segments::kCudaExpandable});
  std::vector<OwnStream> streams(16);
  std::vector<void*> blocks;
  for (auto& stream : streams) blocks.push_back(allocate(kMiB, *stream));
  EXPECT_EQ(std::ranges::count(blocks, nullptr), 0);
  EXPECT_EQ(reserved(), 32 * kMiB);
  for (void* block : blocks) heap.free(block);
}

}  // namespace
}  // namespace openreg::memory
