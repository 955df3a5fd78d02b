#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seed.h"

namespace openreg::memory::testing {

// The guarantees of our allocators, as suites that are instantiated for each: one for all of them,
// and one for each guarantee that only some give. A *subject* is one allocator:
//
//   struct Subject {
//     static constexpr std::size_t kAlignment;       // of each address
//     static constexpr std::size_t kLargestRequest;  // tests request no more
//     static constexpr std::size_t kCapacity;        // in bytes, for LimitedAllocatorContract
//     void* allocate(std::size_t bytes);             // nullptr: out of memory
//     void free(void* address);                      // throws if the address is refused
//     Balance balance();                             // what is held now
//   };

/// The blocks and bytes that users hold, according to an allocator.
struct Balance {
  std::int64_t blocks;
  std::int64_t bytes;
  bool operator==(const Balance&) const = default;
};
inline void PrintTo(const Balance& balance, std::ostream* out) {
  *out << balance.blocks << " blocks of " << balance.bytes << " bytes";
}

/// The ranges that are held; checks that a new one overlaps none of them.
class Ranges {
 public:
  bool insert(void* address, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const auto after = ranges_.lower_bound(begin);
    const bool fits_after = after == ranges_.end() || begin + bytes <= after->first;
    const bool fits_before =
        after == ranges_.begin() || std::prev(after)->first + std::prev(after)->second <= begin;
    ranges_.emplace(begin, bytes);
    return fits_after && fits_before;
  }
  void erase(void* address) { ranges_.erase(reinterpret_cast<std::uintptr_t>(address)); }

 private:
  std::map<std::uintptr_t, std::size_t> ranges_;
};

template <class Subject>
class ContractTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;

  void SetUp() override { at_first_ = subject.balance(); }
  // Each test frees what it allocates.
  void TearDown() override { EXPECT_EQ(subject.balance(), at_first_); }

  static bool is_aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % Subject::kAlignment == 0;
  }
  void free_all(std::vector<void*>& blocks) {
    for (void* block : blocks) subject.free(block);
    blocks.clear();
  }

  Subject subject;

 private:
  Balance at_first_{};
};

// --- All allocators ---

template <class Subject>
class AllocatorContract : public ContractTest<Subject> {};
TYPED_TEST_SUITE_P(AllocatorContract);

TYPED_TEST_P(AllocatorContract, BlocksAreDistinctAndAligned) {
  Ranges ranges;
  std::vector<void*> blocks;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{7}, std::size_t{511}, std::size_t{512}, std::size_t{513},
          std::size_t{4096}, std::size_t{100'000}, this->kMiB - 1, this->kMiB, this->kMiB + 1,
          2 * this->kMiB, 3 * this->kMiB + 7}) {
      blocks.push_back(this->subject.allocate(bytes));
      ASSERT_NE(blocks.back(), nullptr) << bytes;
      EXPECT_TRUE(this->is_aligned(blocks.back())) << bytes;
      EXPECT_TRUE(ranges.insert(blocks.back(), bytes)) << bytes;
    }
  }
  this->free_all(blocks);
}

TYPED_TEST_P(AllocatorContract, TheBalanceIsOfWhatIsHeld) {
  std::vector<Balance> before;
  std::vector<void*> blocks;
  const std::vector<std::size_t> sizes{1, 1000, 70'000, 2 * this->kMiB, 1000};
  for (const std::size_t bytes : sizes) {
    before.push_back(this->subject.balance());
    blocks.push_back(this->subject.allocate(bytes));
    EXPECT_EQ(this->subject.balance().blocks, before.back().blocks + 1);
    EXPECT_GE(this->subject.balance().bytes,
              before.back().bytes + static_cast<std::int64_t>(bytes));
  }
  while (!blocks.empty()) {
    this->subject.free(blocks.back());
    EXPECT_EQ(this->subject.balance(), before.back());
    blocks.pop_back();
    before.pop_back();
  }
}

TYPED_TEST_P(AllocatorContract, FreedMemoryIsReused) {
  for (const std::size_t bytes : {std::size_t{1000}, 3 * this->kMiB}) {
    void* const first = this->subject.allocate(bytes);
    this->subject.free(first);
    void* const second = this->subject.allocate(bytes);
    EXPECT_EQ(second, first) << bytes;
    this->subject.free(second);
  }
}

TYPED_TEST_P(AllocatorContract, SizesNearTheLargestNumberFailAndChangeNothing) {
  void* const held = this->subject.allocate(1000);
  const auto before = this->subject.balance();
  for (const std::size_t less :
       {std::size_t{0}, std::size_t{1}, std::size_t{510}, std::size_t{511}, std::size_t{512},
        std::size_t{4096}, this->kMiB, 2 * this->kMiB - 1, 2 * this->kMiB, 3 * this->kMiB}) {
    for (std::size_t divisor = 1; divisor <= 16; divisor *= 2) {
      const std::size_t bytes = TypeParam::kLargestRequest / divisor - less;
      EXPECT_EQ(this->subject.allocate(bytes), nullptr) << bytes;
    }
  }
  EXPECT_EQ(this->subject.balance(), before);
  void* const next = this->subject.allocate(1000);
  EXPECT_NE(next, nullptr);
  EXPECT_NE(next, held);
  this->subject.free(next);
  this->subject.free(held);
}

TYPED_TEST_P(AllocatorContract, BlocksStayDistinctWhateverTheOrderOfFrees) {
  const unsigned number = seed();
  SCOPED_TRACE("seed " + std::to_string(number));
  std::mt19937 random(number);
  Ranges ranges;
  std::vector<void*> blocks;
  for (int i = 0; i < 2'000; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 2 == 0)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      ranges.erase(blocks.back());
      this->subject.free(blocks.back());
      blocks.pop_back();
    } else {
      const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? this->kMiB : 3000);
      void* const block = this->subject.allocate(bytes);
      ASSERT_NE(block, nullptr);
      blocks.push_back(block);
      ASSERT_TRUE(this->is_aligned(block));
      ASSERT_TRUE(ranges.insert(block, bytes)) << "step " << i;
    }
  }
  this->free_all(blocks);
}

REGISTER_TYPED_TEST_SUITE_P(AllocatorContract, BlocksAreDistinctAndAligned,
                            TheBalanceIsOfWhatIsHeld, FreedMemoryIsReused,
                            SizesNearTheLargestNumberFailAndChangeNothing,
                            BlocksStayDistinctWhateverTheOrderOfFrees);

// --- Allocators of a device with a capacity ---

template <class Subject>
class LimitedAllocatorContract : public ContractTest<Subject> {};
TYPED_TEST_SUITE_P(LimitedAllocatorContract);

TYPED_TEST_P(LimitedAllocatorContract, AllOfTheCapacityCanBeUsedAndNoMore) {
  constexpr std::size_t kPart = std::size_t{2} << 20;
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < TypeParam::kCapacity / kPart; ++i) {
    blocks.push_back(this->subject.allocate(kPart));
    ASSERT_NE(blocks.back(), nullptr) << i;
  }
  const auto full = this->subject.balance();
  for (const std::size_t bytes : {std::size_t{1}, kPart, TypeParam::kCapacity}) {
    EXPECT_EQ(this->subject.allocate(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(this->subject.balance(), full);
  this->subject.free(blocks.back());
  blocks.back() = this->subject.allocate(kPart);
  EXPECT_NE(blocks.back(), nullptr);
  this->free_all(blocks);
}

TYPED_TEST_P(LimitedAllocatorContract, WhatWasFreedInPiecesServesAsAWhole) {
  std::vector<void*> blocks;
  for (const std::size_t part : {std::size_t{512}, std::size_t{64} << 10, this->kMiB,
                                 TypeParam::kCapacity / 4, TypeParam::kCapacity}) {
    while (void* block = this->subject.allocate(part)) blocks.push_back(block);
    EXPECT_EQ(blocks.size(), TypeParam::kCapacity / part) << part;
    this->free_all(blocks);
  }
}

REGISTER_TYPED_TEST_SUITE_P(LimitedAllocatorContract, AllOfTheCapacityCanBeUsedAndNoMore,
                            WhatWasFreedInPiecesServesAsAWhole);

// --- Allocators that know their addresses ---

template <class Subject>
class CheckingAllocatorContract : public ContractTest<Subject> {};
TYPED_TEST_SUITE_P(CheckingAllocatorContract);

TYPED_TEST_P(CheckingAllocatorContract, AnAddressThatIsNotHeldIsRefusedAndNothingIsLost) {
  void* const held = this->subject.allocate(3 * this->kMiB);
  void* const freed = this->subject.allocate(1000);
  this->subject.free(freed);
  int local = 0;
  const auto in_held = [&](std::size_t bytes) {
    return static_cast<void*>(static_cast<std::byte*>(held) + bytes);
  };
  const auto before = this->subject.balance();
  for (void* const wrong : {static_cast<void*>(&local), freed, in_held(1), in_held(512),
                            in_held(2 * this->kMiB), in_held(std::size_t{1} << 40)}) {
    std::string what;
    try {
      this->subject.free(wrong);
    } catch (const std::exception& error) {
      what = error.what();
    }
    EXPECT_NE(what.find("openreg: invalid device pointer (got " +
                        std::to_string(reinterpret_cast<std::uintptr_t>(wrong))),
              std::string::npos)
        << what;
  }
  EXPECT_EQ(this->subject.balance(), before);
  this->subject.free(held);
  EXPECT_EQ(this->subject.balance().blocks, before.blocks - 1);
}

REGISTER_TYPED_TEST_SUITE_P(CheckingAllocatorContract,
                            AnAddressThatIsNotHeldIsRefusedAndNothingIsLost);

// --- Allocators that accept requests for 0 bytes ---

template <class Subject>
class EmptyBlocksContract : public ContractTest<Subject> {};
TYPED_TEST_SUITE_P(EmptyBlocksContract);

TYPED_TEST_P(EmptyBlocksContract, NoBytesAreNoAddressAndMayBeFreed) {
  const auto before = this->subject.balance();
  void* const block = this->subject.allocate(0);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(this->subject.balance(), before);
  this->subject.free(block);
  EXPECT_EQ(this->subject.balance(), before);
}

REGISTER_TYPED_TEST_SUITE_P(EmptyBlocksContract, NoBytesAreNoAddressAndMayBeFreed);

// --- Allocators that many threads use ---

template <class Subject>
class SharedAllocatorContract : public ContractTest<Subject> {};
TYPED_TEST_SUITE_P(SharedAllocatorContract);

TYPED_TEST_P(SharedAllocatorContract, ThreadsNeverHoldTheSameMemory) {
  const unsigned number = seed();
  SCOPED_TRACE("seed " + std::to_string(number));
  std::mutex mutex;
  Ranges ranges;
  int shared = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(number + i);
      std::vector<void*> blocks;
      for (int step = 0; step < 1'000; ++step) {
        if (blocks.size() > 8 || (!blocks.empty() && random() % 2 == 0)) {
          {
            const std::lock_guard lock(mutex);
            ranges.erase(blocks.back());
          }
          this->subject.free(blocks.back());
          blocks.pop_back();
        } else {
          const std::size_t bytes = 1 + random() % (random() % 8 == 0 ? 300'000 : 3000);
          blocks.push_back(this->subject.allocate(bytes));
          const std::lock_guard lock(mutex);
          shared += !ranges.insert(blocks.back(), bytes);
        }
      }
      const std::lock_guard lock(mutex);
      for (void* block : blocks) {
        ranges.erase(block);
        this->subject.free(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
}

REGISTER_TYPED_TEST_SUITE_P(SharedAllocatorContract, ThreadsNeverHoldTheSameMemory);

}  // namespace openreg::memory::testing
