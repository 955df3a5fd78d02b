// The contract of all allocators (../memory/allocator_contract.h), for those that are registered
// with PyTorch.
#include "../memory/allocator_contract.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/device.h"
#include "runtime/stream.h"

namespace openreg::memory::testing {
namespace {

using openreg::backend::kDeviceType;

constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// PyTorch's device allocator as tensors use it, but without tensors.
struct DeviceAllocatorSubject {
  static constexpr std::size_t kAlignment = 512;
  static constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kCapacity = std::size_t{64} << 20;  // set by main()

  void* allocate(std::size_t bytes) {
    try {
      return backend::allocate_raw(bytes, default_stream(0));
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
  }
  void free(void* address) { backend::deallocate_raw(address); }
  Balance balance() {
    const auto stats = allocator.getDeviceStats(0);
    return {stats.allocation[kAll].current, stats.allocated_bytes[kAll].current};
  }

  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(kDeviceType);
};

struct HostAllocatorSubject {
  static constexpr std::size_t kAlignment = 512;
  // Sizes are rounded up to powers of two.
  static constexpr std::size_t kLargestRequest = std::numeric_limits<std::size_t>::max() / 2;

  void* allocate(std::size_t bytes) {
    try {
      auto data = allocator.allocate(bytes);
      void* const address = data.get();
      if (address == nullptr) return nullptr;
      const std::lock_guard lock(mutex);
      held.insert_or_assign(address, std::move(data));
      return address;
    } catch (const c10::Error&) {
      return nullptr;
    }
  }
  void free(void* address) {
    c10::DataPtr data;  // freed without the lock
    const std::lock_guard lock(mutex);
    if (auto node = held.extract(address)) data = std::move(node.mapped());
  }
  Balance balance() {
    const auto stats = allocator.get_stats();
    return {stats.active_requests.current, stats.active_bytes.current};
  }

  at::HostAllocator& allocator = *at::getHostAllocator(kDeviceType);
  std::mutex mutex;
  std::map<void*, c10::DataPtr> held;
};

using OfDevice = ::testing::Types<DeviceAllocatorSubject>;
using Both = ::testing::Types<DeviceAllocatorSubject, HostAllocatorSubject>;
INSTANTIATE_TYPED_TEST_SUITE_P(Backend, AllocatorContract, Both);
INSTANTIATE_TYPED_TEST_SUITE_P(Backend, LimitedAllocatorContract, OfDevice);
INSTANTIATE_TYPED_TEST_SUITE_P(Backend, CheckingAllocatorContract, OfDevice);
INSTANTIATE_TYPED_TEST_SUITE_P(Backend, EmptyBlocksContract, Both);
INSTANTIATE_TYPED_TEST_SUITE_P(Backend, SharedAllocatorContract, Both);

}  // namespace
}  // namespace openreg::memory::testing
