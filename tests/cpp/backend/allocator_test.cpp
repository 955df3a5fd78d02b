#include "backend/allocator.h"

#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/guard.h"
#include "backend/hooks.h"
#include "backend/storage.h"
#include "backend/stream.h"
#include "memory/device_heap.h"
#include "slot_hooks.h"
#include "support.h"

namespace openreg::backend {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;
using testing::enqueue;
using testing::StreamGate;

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

TEST_F(AllocatorTest, FreedMemoryIsReusedWithoutWaitingForTheStreamsWork) {
  StreamGate gate(current_stream(0));
  auto data = allocator.allocate(1000);
  void* first = data.get();
  write(data, "still queued");
  data.clear();
  EXPECT_EQ(allocator.allocate(1000).get(), first);
}

TEST_F(AllocatorTest, MemoryIsOfTheCurrentStream) {
  auto data = allocator.allocate(1000);
  void* first = data.get();
  data.clear();
  exchange_current_stream(stream_from_pool(0, Priority::kNormal));
  EXPECT_NE(allocator.allocate(1000).get(), first);
}

TEST_F(AllocatorTest, MemoryThatAnotherStreamUsesIsNotReusedBeforeThatIsDone) {
  auto& other = stream_from_pool(0, Priority::kNormal);
  auto data = allocator.allocate(1000);
  void* first = data.get();
  {
    StreamGate gate(other);
    device_guard().recordDataPtrOnStream(data, to_torch(other));
    data.clear();
    EXPECT_EQ(stats().allocation[kAll].current, 0);
    EXPECT_EQ(stats().active[kAll].current, 1);
    EXPECT_NE(allocator.allocate(1000).get(), first);
  }
  other.synchronize();
  EXPECT_EQ(allocator.allocate(1000).get(), first);
}

TEST_F(AllocatorTest, RecordingMemoryThatIsNotOursDoesNothing) {
  char host = 0;
  allocator.recordStream(c10::DataPtr(&host, c10::Device(kDeviceType, 0)),
                         to_torch(current_stream(0)));
  allocator.recordStream(allocator.allocate(0), to_torch(current_stream(0)));
}

TEST_F(AllocatorTest, StatisticsAreExactAndOfOneDevice) {
  const auto before = stats(1);
  const auto data = allocator.allocate(1000);
  EXPECT_EQ(stats().requested_bytes[kAll].current, 1000);
  EXPECT_EQ(stats().allocated_bytes[kAll].current, 1024);
  EXPECT_EQ(stats().reserved_bytes[kAll].current, static_cast<std::int64_t>(2 * kMiB));
  EXPECT_EQ(stats().segment[kAll].current, 1);
  EXPECT_EQ(stats().inactive_split_bytes[kAll].current, static_cast<std::int64_t>(2 * kMiB - 1024));
  EXPECT_EQ(stats(1).allocated_bytes[kAll].allocated, before.allocated_bytes[kAll].allocated);
}

TEST_F(AllocatorTest, PeakAndAccumulatedStatisticsAreReset) {
  allocator.allocate(4 * kMiB).clear();
  allocator.resetPeakStats(0);
  allocator.resetAccumulatedStats(0);
  EXPECT_EQ(stats().allocated_bytes[kAll].peak, 0);
  EXPECT_EQ(stats().allocated_bytes[kAll].allocated, 0);
  EXPECT_EQ(stats().reserved_bytes[kAll].peak, static_cast<std::int64_t>(4 * kMiB));
  allocator.allocate(8 * kMiB).clear();
  EXPECT_EQ(stats().allocated_bytes[kAll].peak, static_cast<std::int64_t>(8 * kMiB));
}

TEST_F(AllocatorTest, EmptyCacheReleasesUnusedMemory) {
  auto& space = AddressSpace::get();
  const auto held = allocator.allocate(100);
  allocator.allocate(8 * kMiB).clear();
  EXPECT_EQ(space.mapped(0), 10 * kMiB);
  allocator.emptyCache();
  EXPECT_EQ(space.mapped(0), 2 * kMiB);
  EXPECT_EQ(stats().reserved_bytes[kAll].current, static_cast<std::int64_t>(2 * kMiB));
}

TEST_F(AllocatorTest, EmptyCacheWaitsForWorkOnFreedMemory) {
  auto data = allocator.allocate(8 * kMiB);
  bool ran = false;
  enqueue(current_stream(0), [&, to = data.get()] {
    std::memset(AddressSpace::get().aperture(to), 1, 8 * kMiB);
    ran = true;
  });
  data.clear();
  allocator.emptyCache();
  EXPECT_TRUE(ran);
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

TEST_F(AllocatorTest, MemoryInfoIsFreeAndTotal) {
  EXPECT_EQ(allocator.getMemoryInfo(0),
            (std::pair<std::size_t, std::size_t>{64 * kMiB, 64 * kMiB}));
  const auto data = allocator.allocate(4 * kMiB);
  EXPECT_EQ(allocator.getMemoryInfo(0).first, 60 * kMiB);
  EXPECT_THROW(allocator.getMemoryInfo(2), c10::Error);
}

TEST_F(AllocatorTest, TheCacheOfAnotherStreamIsGivenUpBeforeMemoryIsOut) {
  auto& own = exchange_current_stream(stream_from_pool(0, Priority::kNormal));
  allocator.allocate(40 * kMiB).clear();
  exchange_current_stream(own);
  const auto retries = stats().num_alloc_retries;
  exchange_current_stream(stream_from_pool(0, Priority::kNormal));  // cannot use what is cached
  const auto data = allocator.allocate(60 * kMiB);
  EXPECT_NE(data.get(), nullptr);
  EXPECT_EQ(stats().num_alloc_retries, retries + 1);
}

TEST_F(AllocatorTest, FreesThatWaitForOtherStreamsAreFinishedBeforeMemoryIsOut) {
  auto& other = stream_from_pool(0, Priority::kNormal);
  auto data = allocator.allocate(40 * kMiB);
  enqueue(other, [] {});
  allocator.recordStream(data, to_torch(other));
  data.clear();
  EXPECT_NE(allocator.allocate(60 * kMiB).get(), nullptr);
}

TEST_F(AllocatorTest, OutOfMemoryNamesTheFiguresAndChangesNothing) {
  const auto held = allocator.allocate(16 * kMiB);
  const auto ooms = stats().num_ooms;
  try {
    allocator.allocate(56 * kMiB);
    FAIL() << "fits?";
  } catch (const c10::OutOfMemoryError& e) {
    EXPECT_STREQ(e.what_without_backtrace(),
                 "openreg:0 is out of memory. Tried to allocate 56.00 MiB; the device has "
                 "64.00 MiB: 16.00 MiB are in use by tensors, 0 bytes are cached in blocks that do "
                 "not fit, 48.00 MiB are free. Free tensors, use smaller batches, or raise "
                 "TORCH_OPENREG_MEMORY; see torch.openreg.memory_summary()");
  }
  EXPECT_EQ(stats().num_ooms, ooms + 1);
  EXPECT_EQ(stats().allocated_bytes[kAll].current, static_cast<std::int64_t>(16 * kMiB));
  EXPECT_NE(allocator.allocate(40 * kMiB).get(), nullptr);
}

TEST_F(AllocatorTest, AnImpossibleSizeGivesTheCacheBack) {
  for (const auto size : {~std::size_t{0}, 65 * kMiB}) {
    allocator.allocate(8 * kMiB).clear();
    EXPECT_THROW(allocator.allocate(size), c10::OutOfMemoryError);
    EXPECT_EQ(stats().reserved_bytes[kAll].current, 0);
  }
}

TEST_F(AllocatorTest, CloneCopiesInOrderOnTheCurrentStream) {
  const auto data = allocator.allocate(5);
  c10::DataPtr copy;
  {
    StreamGate gate(current_stream(0));
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
    StreamGate gate(current_stream(0));
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

TEST_F(AllocatorTest, EachBlockIsReportedToProfilers) {
  struct Report {
    std::int64_t bytes;
    std::size_t allocated, reserved;
    c10::Device device;
    bool operator==(const Report&) const = default;
  };
  struct Listener final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                           c10::Device device) override {
      reports.push_back({bytes, allocated, reserved, device});
    }
    void reportOutOfMemory(std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
      refused.push_back(bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::vector<Report> reports;
    std::vector<std::int64_t> refused;
  };
  auto listener = std::make_shared<Listener>();
  const c10::DebugInfoGuard listening(c10::DebugInfoKind::PROFILER_STATE, listener);
  allocator.allocate(1000).clear();
  EXPECT_THROW(allocator.allocate(65 * kMiB), c10::OutOfMemoryError);
  const c10::Device device(kDeviceType, 0);
  EXPECT_EQ(listener->reports,
            (std::vector<Report>{{1024, 1024, 2 * kMiB, device}, {-1024, 0, 2 * kMiB, device}}));
  EXPECT_EQ(listener->refused, std::vector<std::int64_t>{65 * kMiB});
}

}  // namespace
}  // namespace openreg::backend
