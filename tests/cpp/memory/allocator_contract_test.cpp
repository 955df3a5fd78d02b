#include "allocator_contract.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>

#include "fake_backing.h"
#include "memory/device_heap.h"
#include "memory/heap.h"
#include "runtime/stream.h"

namespace openreg::memory::testing {
namespace {

Balance balance_of(Statistics& statistics) {
  return {statistics.allocation.current(), statistics.allocated_bytes.current()};
}

struct HeapSubject {
  static constexpr std::size_t kAlignment = kBlockBytes;
  static constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kCapacity = 64 * kMiB;

  void* allocate(std::size_t bytes) {
    if (void* address = heap.allocate(bytes, fake_stream(0))) return address;
    heap.release(heap.detach_unused());
    return heap.allocate(bytes, fake_stream(0));
  }
  void free(void* address) { heap.free(address); }
  Balance balance() { return balance_of(heap.statistics()); }

  FakeBacking backing{kCapacity};
  Heap heap{backing};
};

struct DeviceHeapSubject {
  static constexpr std::size_t kAlignment = kBlockBytes;
  static constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kCapacity = 64 * kMiB;

  void* allocate(std::size_t bytes) { return heap.allocate(bytes, default_stream(0)).address; }
  void free(void* address) { heap.free(address); }
  Balance balance() {
    return heap.locked([](Heap& inner) { return balance_of(inner.statistics()); });
  }

  DeviceHeap& heap = device_heap(0);
};

using Both = ::testing::Types<HeapSubject, DeviceHeapSubject>;
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, AllocatorContract, Both);
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, LimitedAllocatorContract, Both);
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, CheckingAllocatorContract, Both);
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, SharedAllocatorContract, DeviceHeapSubject);
// Heaps never get requests for 0 bytes: the layers above them handle those.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmptyBlocksContract);

}  // namespace
}  // namespace openreg::memory::testing
