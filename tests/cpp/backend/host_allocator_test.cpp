#include "backend/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "backend/device.h"
#include "backend/stream.h"
#include "memory/pinned/pinned_guard.h"
#include "memory/pinned/pinned_windows.h"
#include "runtime/happens_before.h"

namespace openreg::backend {
namespace {

using memory::PinnedGuard;
using testing::Blocker;

class HostAllocatorTest : public ::testing::Test {
 protected:
  at::HostAllocator& allocator = *at::getHostAllocator(kDeviceType);
  void SetUp() override { allocator.empty_cache(); }
};

/// While hosts that use pinned memory too early are found.
class GuardedHostAllocatorTest : public HostAllocatorTest {
 protected:
  inline static std::atomic<int> reports;

  void SetUp() override {
    if (!PinnedGuard::kAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
    HappensBefore::track(true);
    guard_pinned_memory(PinnedGuard::Reaction::kRaise);
    reports = 0;
    PinnedGuard::set_reporter(
        [](const char*, PinnedGuard::Reaction) noexcept { return ++reports > 0; });
  }
  void TearDown() override {
    stream.synchronize();
    guard_pinned_memory(std::nullopt);
    PinnedGuard::set_reporter(nullptr);
    HappensBefore::track(false);
  }

  /// A copy that writes all of the block, as operators and the race detector submit it.
  void copy_to(const c10::DataPtr& block, std::size_t bytes) {
    const auto submission = HappensBefore::get()->submit(stream).last();
    PinnedGuard::get()->protect({block.get(), bytes}, /*written=*/true, submission, "aten::copy_");
    testing::enqueue(stream, [] {});
    EXPECT_TRUE(allocator.record_event(block.get(), block.get_context(), to_torch(stream)));
  }

  openreg::Stream& stream = stream_from_pool(0, Priority::kNormal);
};

TEST_F(HostAllocatorTest, PinnedMemoryIsHostMemoryAndKnownByAnyPointerIntoIt) {
  const auto data = allocator.allocate(8192);
  auto* bytes = static_cast<char*>(data.get());
  EXPECT_EQ(data.device(), c10::Device(c10::kCPU));
  std::memset(bytes, 7, 8192);
  EXPECT_EQ(bytes[8191], 7);
  EXPECT_TRUE(is_pinned(bytes));
  EXPECT_TRUE(is_pinned(bytes + 8191));
  EXPECT_FALSE(is_pinned(bytes - 1));
  EXPECT_FALSE(is_pinned(bytes + 8192));
}

TEST_F(HostAllocatorTest, APointerIntoABlockIsEnoughToKeepItFromBeingReused) {
  auto& stream = stream_from_pool(0, Priority::kNormal);
  auto data = allocator.allocate(1000);
  void* first = data.get();
  {
    Blocker blocker(stream);
    EXPECT_TRUE(allocator.record_event(static_cast<char*>(first) + 100, nullptr, to_torch(stream)));
    EXPECT_FALSE(
        allocator.record_event(&stream, nullptr, to_torch(stream)));  // not the allocator's
    data.clear();
    EXPECT_NE(allocator.allocate(1000).get(), first);
  }
  stream.synchronize();
  allocator.empty_cache();
}

TEST_F(HostAllocatorTest, MemoryIsNotRegisteredTwiceNorUnregisteredIfItIsNot) {
  std::vector<char> memory(100000);
  register_pinned(memory.data() + 1000, 1000);
  for (const int inside : {1000, 1999}) EXPECT_TRUE(is_pinned(memory.data() + inside));
  for (const int outside : {999, 2000}) EXPECT_FALSE(is_pinned(memory.data() + outside));
  EXPECT_THROW(register_pinned(memory.data() + 1000, 1000), c10::Error);
  EXPECT_THROW(register_pinned(memory.data() + 1999, 10), c10::Error);
  EXPECT_THROW(register_pinned(memory.data() + 500, 501), c10::Error);
  EXPECT_THROW(register_pinned(memory.data(), memory.size()), c10::Error);
  EXPECT_THROW(unregister_pinned(memory.data() + 1500), c10::Error);
  register_pinned(memory.data() + 500, 500);  // up to the other
  register_pinned(memory.data() + 2000, 500);
  for (const int begin : {500, 1000, 2000}) unregister_pinned(memory.data() + begin);
  EXPECT_THROW(unregister_pinned(memory.data() + 1000), c10::Error);
  const auto block = allocator.allocate(1000);
  EXPECT_THROW(register_pinned(block.get(), 1000), c10::Error);
  EXPECT_THROW(unregister_pinned(block.get()), c10::Error);
}

TEST_F(GuardedHostAllocatorTest, ABlockThatIsReusedHasTheSizeOfItsNewOwner) {
  const auto end_of_use = [](const c10::DataPtr& data) {
    auto& windows = *memory::PinnedWindows::get();
    return windows.end_of_use(windows.block_of(reinterpret_cast<std::uintptr_t>(data.get())));
  };
  auto data = allocator.allocate(600);
  const auto first = reinterpret_cast<std::uintptr_t>(data.get());
  EXPECT_EQ(end_of_use(data), first + 600);
  data.clear();
  data = allocator.allocate(1000);  // of the same size in the cache
  EXPECT_EQ(end_of_use(data), first + 1000);
}

TEST_F(GuardedHostAllocatorTest, ABlockThatIsReusedIsNotConcernedByCopiesOfItsOwnerBefore) {
  auto data = allocator.allocate(4096);
  void* const first = data.get();
  copy_to(data, 4096);
  data.clear();
  while (!stream.idle()) std::this_thread::yield();
  data = allocator.allocate(4096);
  ASSERT_EQ(data.get(), first);
  *static_cast<volatile char*>(first) = 1;
  EXPECT_EQ(*static_cast<volatile char*>(first), 1);
  EXPECT_EQ(reports, 0);
}

TEST_F(GuardedHostAllocatorTest, PagesReturnToTheSystem) {
  auto data = allocator.allocate(4096);
  void* const first = data.get();
  *static_cast<volatile char*>(first) = 7;
  copy_to(data, 4096);
  data.clear();
  while (!stream.idle()) std::this_thread::yield();
  allocator.empty_cache();
  EXPECT_FALSE(is_pinned(first));
  data = allocator.allocate(4096);
  EXPECT_EQ(data.get(), first);  // the addresses are used again
  EXPECT_EQ(*static_cast<volatile char*>(first), 0);
  EXPECT_EQ(reports, 0);
}

TEST_F(HostAllocatorTest, CopiesHostMemory) {
  const auto from = allocator.allocate(5);
  const auto to = allocator.allocate(5);
  std::memcpy(from.get(), "bytes", 5);
  allocator.copy_data(to.get(), from.get(), 5);
  EXPECT_EQ(std::string(static_cast<char*>(to.get()), 5), "bytes");
}

}  // namespace
}  // namespace openreg::backend
