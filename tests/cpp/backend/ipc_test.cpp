#include "backend/ipc.h"

#include <c10/core/StorageImpl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <new>
#include <semaphore>
#include <thread>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/ipc_imports.h"
#include "backend/stream.h"
#include "runtime/callbacks.h"

namespace openreg::backend {
namespace {

using namespace testing;

constexpr std::size_t kBytes = 4096;

c10::Storage make_storage() {
  auto& allocator = device_allocator();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), kBytes,
                                               allocator.allocate(kBytes), &allocator, true);
}

// Descriptors of shared memory. Other files come and go: an engine reads its control group's quota.
std::ptrdiff_t open_files() {
  std::ptrdiff_t count = 0;
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const auto file = std::filesystem::read_symlink(descriptor, closed_meanwhile).string();
    if (file.starts_with("/memfd:openreg")) ++count;
  }
  return count;
}

char& byte_of(const c10::DataPtr& data) {
  return *static_cast<char*>(AddressSpace::get().aperture(data.get()));
}

// Imports use a separate descriptor, so it does not matter that the file belongs to this process.
TEST(IpcTest, ImportedMemoryGoesWhenTheWorkThatUsesItIsDone) {
  const auto storage = make_storage();
  const auto handle = share_storage(storage);
  const auto before = open_files();
  byte_of(storage.data_ptr()) = 7;
  auto data = import_block(handle.file, 0, handle.offset, handle.bytes, handle.generation);
  EXPECT_NE(data.get(), storage.data());
  EXPECT_EQ(imported_from(data).offset, handle.offset);
  EXPECT_EQ(imported_from(storage.data_ptr()).file, nullptr);
  EXPECT_EQ(open_files(), before + 1);
  char read = 0;
  Blocker blocker(current_stream(0));
  enqueue(current_stream(0), [&read, &from = byte_of(data)] { read = from; });
  data.clear();
  EXPECT_EQ(open_files(), before + 1);
  blocker.open();
  current_stream(0).synchronize();
  EXPECT_EQ(read, 7);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (open_files() > before && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();  // a background thread releases it
  EXPECT_EQ(open_files(), before);
}

std::atomic<bool> g_wait_fails{false};
std::binary_semaphore g_wait_has_failed{0};

TEST(IpcTest, ImportedMemoryGoesAlsoIfAWaitForItHasFailedBefore) {
  install_callbacks({.check_interrupt = [] {
    if (!g_wait_fails.exchange(false)) return;
    g_wait_has_failed.release();
    throw std::bad_alloc();
  }});
  const auto storage = make_storage();
  share_storage(storage);
  const auto before = open_files();
  // Frees imported memory that queued work may use.
  const auto free_import = [&] {
    const auto handle = share_storage(storage);
    auto data = import_block(handle.file, 0, handle.offset, handle.bytes, handle.generation);
    auto blocker = std::make_unique<Blocker>(current_stream(0));
    data.clear();
    return blocker;
  };
  g_wait_fails = true;
  auto blocker = free_import();
  g_wait_has_failed.acquire();
  blocker.reset();
  // The background thread may still be about to end: then the next block is left as well.
  bool gone = false;
  for (int i = 0; i < 10 && !gone; ++i) {
    free_import();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (open_files() > before && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    gone = open_files() == before;
  }
  EXPECT_TRUE(gone);
}

TEST(IpcTest, SmallBlocksOfAFileShareAMapping) {
  const auto first = make_storage();
  const auto second = make_storage();
  const auto import = [](const IpcHandle& handle) {
    return import_block(handle.file, 0, handle.offset, handle.bytes, handle.generation);
  };
  const auto here = import(share_storage(first));
  const auto there = import(share_storage(second));
  EXPECT_EQ(static_cast<const char*>(there.get()) - static_cast<const char*>(here.get()),
            static_cast<const char*>(second.data()) - static_cast<const char*>(first.data()));
}

}  // namespace
}  // namespace openreg::backend
