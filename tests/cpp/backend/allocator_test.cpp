#include "backend/allocator.h"

#include <c10/core/Storage.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/guard.h"
#include "backend/hooks.h"
#include "backend/storage.h"
#include "backend/stream.h"
#include "memory/device_heap.h"
#include "slot_hooks.h"

namespace openreg::backend {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;
using namespace testing;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

class AllocatorTest : public ::testing::Test {
 protected:
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(kDeviceType);

  void SetUp() override { allocator.emptyCache(); }
  void TearDown() override {
    exchange_current_stream(default_stream(0));
    set_device(0);
  }
  DeviceStats stats(int device = 0) {
    return allocator.getDeviceStats(static_cast<c10::DeviceIndex>(device));
  }

  static void write(const c10::DataPtr& data, const std::string& text) {
    enqueue(current_stream(data.device().index()), [to = data.get(), text] {
      std::memcpy(AddressSpace::get().aperture(to), text.data(), text.size());
    });
  }
  static std::string read(const void* data, int device, std::size_t bytes) {
    std::string text(bytes, '\0');
    auto& stream = current_stream(static_cast<c10::DeviceIndex>(device));
    enqueue(stream, [&] { std::memcpy(text.data(), AddressSpace::get().aperture(data), bytes); });
    stream.synchronize();
    return text;
  }
};

TEST_F(AllocatorTest, MemoryIsOfTheCurrentDeviceEvenNone) {
  set_device(1);
  for (std::size_t bytes : {std::size_t{0}, std::size_t{100}}) {
    const auto data = allocator.allocate(bytes);
    EXPECT_EQ(data.device(), c10::Device(kDeviceType, 1));
    EXPECT_EQ(data.get() == nullptr, bytes == 0);
    EXPECT_EQ(data.get(), data.get_context());
    EXPECT_EQ(data.get_deleter(), allocator.raw_deleter());
  }
  const auto data = allocator.allocate(1);
  EXPECT_EQ(AddressSpace::get().device_of(data.get()), 1);
}

TEST_F(AllocatorTest, RawMemoryGoesBackByTheRawDeleter) {
  void* memory = allocator.raw_allocate(100);
  EXPECT_EQ(stats().allocation[kAll].current, 1);
  allocator.raw_deallocate(memory);
  EXPECT_EQ(stats().allocation[kAll].current, 0);
}

TEST_F(AllocatorTest, RecordingMemoryThatIsNotOursDoesNothing) {
  char host = 0;
  allocator.recordStream(c10::DataPtr(&host, c10::Device(kDeviceType, 0)),
                         to_torch(current_stream(0)));
  allocator.recordStream(allocator.allocate(0), to_torch(current_stream(0)));
}

TEST_F(AllocatorTest, TheCacheOfAPrivatePoolIsEmptiedWhenThePoolIsUnused) {
  const c10::MempoolId_t pool{0, 77};
  auto& heap = memory::device_heap(0);
  const int route = heap.locked([&](memory::Heap& h) {
    return h.add_route(pool, [](const openreg::Stream&) { return true; });
  });
  allocator.allocate(4 * kMiB).clear();
  allocator.emptyCache(pool);
  EXPECT_EQ(stats().reserved_bytes[kAll].current, static_cast<std::int64_t>(4 * kMiB));
  heap.locked([&](memory::Heap& h) { h.remove_route(route); });
  allocator.emptyCache({0, 78});
  EXPECT_EQ(stats().reserved_bytes[kAll].current, static_cast<std::int64_t>(4 * kMiB));
  allocator.emptyCache(pool);
  EXPECT_EQ(stats().reserved_bytes[kAll].current, 0);
}

TEST_F(AllocatorTest, CloneCopiesInOrderOnTheCurrentStream) {
  const auto data = allocator.allocate(5);
  c10::DataPtr copy;
  {
    Blocker blocker(current_stream(0));
    write(data, "first");
    copy = allocator.clone(data.get(), 5);
    write(data, "later");
  }
  EXPECT_EQ(read(copy.get(), 0, 5), "first");
  EXPECT_EQ(read(data.get(), 0, 5), "later");
}

TEST_F(AllocatorTest, CopiesBetweenDevicesKeepBothStreamsInOrder) {
  const auto from = allocator.allocate(5);
  set_device(1);
  const auto to = allocator.allocate(5);
  {
    Blocker blocker(current_stream(0));
    write(from, "first");
    allocator.copy_data(to.get(), from.get(), 5);
    write(from, "later");
  }
  EXPECT_EQ(read(to.get(), 1, 5), "first");
  EXPECT_EQ(read(from.get(), 0, 5), "later");
}

TEST_F(AllocatorTest, AResizedStorageKeepsWhatFits) {
  const auto& hooks = accelerator_hooks();
  set_device(1);
  c10::Storage storage(c10::Storage::use_byte_size_t(), 5, allocator.allocate(5), &allocator,
                       /*resizable=*/true);
  set_device(0);
  write(storage.data_ptr(), "12345");
  hooks.resize_bytes(storage, 100);
  EXPECT_EQ(storage.nbytes(), 100U);
  EXPECT_EQ(storage.device(), c10::Device(kDeviceType, 1));
  EXPECT_EQ(read(storage.data(), 1, 5), "12345");
  hooks.resize_bytes(storage, 3);
  EXPECT_EQ(read(storage.data(), 1, 3), "123");
  hooks.resize_bytes(storage, 0);
  EXPECT_EQ(storage.nbytes(), 0U);
  EXPECT_EQ(storage.device(), c10::Device(kDeviceType, 1));
  hooks.resize_bytes(storage, 3);
  EXPECT_NE(storage.data(), nullptr);
}

}  // namespace
}  // namespace openreg::backend
