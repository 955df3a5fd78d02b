#include "ops/wire/guarded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace openreg::ops {
namespace {

/// Threads may run when these tests fork.
class GuardedMemoryDeathTest : public testing::Test {
 protected:
  GuardedMemoryDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// The sanitizer does not know this memory, so nothing but its protection catches these accesses.
using Bytes = volatile unsigned char*;

TEST(GuardedMemory, IsZeroAndAligned) {
  for (const std::size_t bytes : {0, 1, 24, 4096, 4104, 100000}) {
    const auto memory = make_guarded_memory(bytes, 8);
    const auto* const begin = static_cast<const unsigned char*>(memory.get());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % 8, 0);
    EXPECT_TRUE(std::all_of(begin, begin + bytes, [](unsigned char each) { return each == 0; }));
  }
}

TEST(GuardedMemory, MayBeWritten) {
  const auto memory = make_guarded_memory(5000, 8);
  std::fill_n(static_cast<unsigned char*>(memory.get()), 5000, 1);
}

TEST_F(GuardedMemoryDeathTest, AReadBehindItIsAFault) {
  const auto memory = make_guarded_memory(8, 8);
  EXPECT_DEATH((void)static_cast<Bytes>(memory.get())[8], "");
}

TEST_F(GuardedMemoryDeathTest, WithoutElementsThereIsNothingToRead) {
  const auto memory = make_guarded_memory(0, 8);
  EXPECT_DEATH((void)static_cast<Bytes>(memory.get())[0], "");
}

TEST_F(GuardedMemoryDeathTest, AWriteBeforeItIsFoundLater) {
  auto memory = make_guarded_memory(8, 8);
  const auto write = [&] {
    static_cast<Bytes>(memory.get())[-1] = 0;
    memory.reset();
  };
  EXPECT_DEATH(write(), "a kernel wrote out of the bounds of a tensor");
}

TEST_F(GuardedMemoryDeathTest, AWriteBehindAnOddEndIsFoundLater) {
  auto memory = make_guarded_memory(5, 8);
  const auto write = [&] {
    static_cast<Bytes>(memory.get())[7] = 0;
    memory.reset();
  };
  EXPECT_DEATH(write(), "a kernel wrote out of the bounds of a tensor");
}

}  // namespace
}  // namespace openreg::ops
