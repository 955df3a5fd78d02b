#include "memory/pinned/pinned_windows.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "../not_emulated.h"

namespace openreg::memory {
namespace {

PinnedWindows& windows() { return *PinnedWindows::get(); }
std::size_t page() { return PinnedWindows::page_size(); }
char* map(std::size_t bytes) { return static_cast<char*>(windows().map(bytes)); }

char& to_device(char* p) {
  return *reinterpret_cast<char*>(windows().device_address(reinterpret_cast<std::uintptr_t>(p)));
}
PinnedWindows::Block block_of(const char* p) {
  return windows().block_of(reinterpret_cast<std::uintptr_t>(p));
}

class PinnedWindowsTest : public ::testing::Test {
 protected:
  void SetUp() override { OPENREG_NOT_EMULATED("reserves many addresses"); }
};

TEST_F(PinnedWindowsTest, TheProgramAndTheDeviceHaveTheSameMemoryAtTwoAddresses) {
  char* const bytes = map(2 * page());
  char* const last = bytes + 2 * page() - 1;
  ASSERT_NE(&to_device(last), last);
  *last = 7;
  EXPECT_EQ(to_device(last), 7);
  to_device(last) = 8;
  EXPECT_EQ(*last, 8);
  char other = 0;
  EXPECT_EQ(&to_device(&other), &other);
  EXPECT_TRUE(windows().unmap(bytes));
  EXPECT_FALSE(windows().unmap(&other));
}

TEST_F(PinnedWindowsTest, ABlockIsFoundByItsAddressesUntilItIsUnmapped) {
  char* const bytes = map(2 * page());
  for (const char* at : {bytes, bytes + 2 * page() - 1})
    EXPECT_EQ(block_of(at).begin, reinterpret_cast<std::uintptr_t>(bytes));
  EXPECT_FALSE(block_of(bytes + 2 * page()).contains(reinterpret_cast<std::uintptr_t>(bytes)));
  EXPECT_EQ(windows().end_of_use(block_of(bytes)), block_of(bytes).end);
  windows().set_used(bytes, 100);
  EXPECT_EQ(windows().end_of_use(block_of(bytes)), block_of(bytes).begin + 100);
  *bytes = 7;
  EXPECT_TRUE(windows().unmap(bytes));
  EXPECT_EQ(block_of(bytes).begin, 0);
  ASSERT_EQ(map(2 * page()), bytes);  // the addresses are used again
  EXPECT_EQ(*bytes, 0);
  EXPECT_EQ(windows().end_of_use(block_of(bytes)), block_of(bytes).end);
  EXPECT_TRUE(windows().unmap(bytes));
}

// As signal handlers do on any thread.
TEST_F(PinnedWindowsTest, ThreadsFindABlockWhileOthersComeAndGo) {
  char* const bytes = map(page());
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    while (!ends) EXPECT_TRUE(block_of(bytes).contains(reinterpret_cast<std::uintptr_t>(bytes)));
  });
  for (int i = 0; i < 500; ++i) {
    char* const other = map(page() << i % 3);
    ASSERT_NE(other, nullptr);
    to_device(other) = 1;
    EXPECT_TRUE(windows().unmap(other));
  }
  ends = true;
  reader.join();
  EXPECT_TRUE(windows().unmap(bytes));
}

}  // namespace
}  // namespace openreg::memory
