#include "runtime/fence_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace openreg {
namespace {

constexpr std::size_t kBytes = 256;

TEST(FencePool, NoMemoryIsHandedOutTwice) {
  std::vector<void*> held;
  for (int i = 0; i < 1000; ++i) held.push_back(allocate_fence(kBytes));
  EXPECT_EQ(std::set<void*>(held.begin(), held.end()).size(), held.size());
  for (void* memory : held) free_fence(memory);
  std::vector<void*> again;
  for (int i = 0; i < 1000; ++i) again.push_back(allocate_fence(kBytes));
  EXPECT_EQ(std::set<void*>(again.begin(), again.end()).size(), again.size());
  for (void* memory : again) free_fence(memory);
}

TEST(FencePool, MemoryThatOneThreadAllocatesAndAnotherFreesGoesRound) {
  for (int round = 0; round < 20; ++round) {
    std::vector<void*> held;
    for (int i = 0; i < 2000; ++i) {
      held.push_back(allocate_fence(kBytes));
      std::memset(held.back(), round, kBytes);
    }
    const bool intact = std::all_of(held.begin(), held.end(), [&](const void* memory) {
      const auto* bytes = static_cast<const char*>(memory);
      return std::all_of(bytes, bytes + kBytes, [&](char byte) { return byte == round; });
    });
    EXPECT_TRUE(intact);
    std::thread([&] {
      for (void* memory : held) free_fence(memory);
    }).join();
  }
}

}  // namespace
}  // namespace openreg
