#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "fake_backing.h"
#include "memory/heap.h"

namespace openreg::memory::testing {

inline constexpr std::array kBothClasses{SizeClass::kSmall, SizeClass::kLarge};

/// The counters whose current value can be computed from segments(), with their names.
inline constexpr std::array<std::pair<const char*, ClassStat Statistics::*>, 9> kVisible{{
    {"allocation", &Statistics::allocation},
    {"allocated_bytes", &Statistics::allocated_bytes},
    {"requested_bytes", &Statistics::requested_bytes},
    {"active", &Statistics::active},
    {"active_bytes", &Statistics::active_bytes},
    {"inactive_split", &Statistics::inactive_split},
    {"inactive_split_bytes", &Statistics::inactive_split_bytes},
    {"segment", &Statistics::segment},
    {"reserved_bytes", &Statistics::reserved_bytes},
}};

/// All numbers as text, to be compared before and after a call that must not change any.
inline std::string describe(const Statistics& statistics) {
  std::ostringstream out;
  const auto add = [&](const char* name, const ClassStat& counter) {
    out << name;
    for (const Stat& c :
         {counter.all(), counter.of(SizeClass::kSmall), counter.of(SizeClass::kLarge)}) {
      out << " (" << c.current << " " << c.peak << " " << c.allocated << " " << c.freed << ")";
    }
    out << "\n";
  };
  for (const auto& [name, counter] : kVisible) add(name, statistics.*counter);
  add("oversize_allocations", statistics.oversize_allocations);
  add("oversize_segments", statistics.oversize_segments);
  out << statistics.device_maps << " " << statistics.device_unmaps << " " << statistics.retries
      << " " << statistics.out_of_memory << " " << statistics.synchronizations;
  return out.str();
}

/// By counter (in the order of kVisible) and class.
using Currents = std::array<std::array<std::int64_t, kSizeClasses>, kVisible.size()>;

inline Currents currents_of(const Heap& heap) {
  Currents result{};
  for (const auto& segment : heap.segments()) {
    const auto add = [&](std::size_t counter, std::int64_t amount) {
      result[counter][static_cast<std::size_t>(segment.size_class)] += amount;
    };
    // CUDA counts neither expandable segments nor their free blocks.
    const bool counts = !heap.policy().is_cudas() || !segment.is_expandable;
    if (counts) add(7, 1);
    add(8, signed_bytes(segment.bytes));
    for (const auto& block : segment.blocks) {
      const auto bytes = signed_bytes(block.bytes);
      const bool held = block.state == Block::State::kHeld;
      if (held) {
        add(0, 1);
        add(1, bytes);
        add(2, signed_bytes(block.requested));
      }
      if (held || block.state == Block::State::kPending) {
        add(3, 1);
        add(4, bytes);
      }
      if (counts && block.state == Block::State::kFree && segment.blocks.size() > 1) {
        add(5, 1);
        add(6, bytes);
      }
    }
  }
  return result;
}

/// Checks what is true of a heap between any two calls.
inline void expect_consistent(Heap& heap, const FakeBacking& backing) {
  std::size_t reserved = 0;
  std::uintptr_t end_before = 0;
  std::map<PoolId, std::array<std::int64_t, kSizeClasses>> private_bytes;
  for (const auto& segment : heap.segments()) {
    EXPECT_GE(segment.address, end_before) << "segments overlap";
    EXPECT_EQ(segment.address % kSegmentBytes, 0U);
    EXPECT_EQ(segment.bytes % kSegmentBytes, 0U);
    reserved += segment.bytes;
    if (segment.pool != PoolId{}) {
      private_bytes[segment.pool][static_cast<std::size_t>(segment.size_class)] +=
          signed_bytes(segment.bytes);
    }
    std::uintptr_t next = segment.address;
    bool left_is_free = false;
    for (const auto& block : segment.blocks) {
      EXPECT_EQ(block.address, next) << "blocks leave a gap or overlap";
      EXPECT_GT(block.bytes, 0U);
      EXPECT_EQ(block.bytes % kBlockBytes, 0U);
      const bool is_free = block.state == Block::State::kFree;
      EXPECT_FALSE(is_free && left_is_free) << "two free blocks are neighbours";
      if (is_free || block.state == Block::State::kDetached) {
        EXPECT_EQ(block.requested, 0U);
        EXPECT_EQ(block.context, nullptr);
      } else {
        EXPECT_LE(block.requested, block.bytes);
      }
      left_is_free = is_free;
      next = block.address + block.bytes;
    }
    EXPECT_EQ(next, segment.address + segment.bytes);
    end_before = next;
  }
  EXPECT_EQ(reserved, backing.mapped());
  EXPECT_EQ(static_cast<std::size_t>(heap.statistics().reserved_bytes.current()), reserved);
  const auto currents = currents_of(heap);
  for (std::size_t i = 0; i < kVisible.size(); ++i) {
    const auto& counter = heap.statistics().*kVisible[i].second;
    for (const auto size_class : kBothClasses) {
      EXPECT_EQ(counter.of(size_class).current, currents[i][static_cast<std::size_t>(size_class)])
          << kVisible[i].first << " of class " << static_cast<int>(size_class);
    }
  }
  for (const auto& [pool, counter] : heap.reserved_by_private_pools()) {
    for (const auto size_class : kBothClasses) {
      EXPECT_EQ(counter.of(size_class).current,
                private_bytes[pool][static_cast<std::size_t>(size_class)]);
    }
  }
}

/// A heap over a fake device of 64 MiB, which is checked at the end of each test.
class HeapTest : public ::testing::Test {
 protected:
  void TearDown() override { expect_consistent(heap, backing); }

  static Stream& stream(int i) { return fake_stream(i); }
  void* allocate(std::size_t bytes, int on = 0) { return heap.allocate(bytes, stream(on)); }
  Statistics& statistics() { return heap.statistics(); }
  std::size_t reserved() { return static_cast<std::size_t>(statistics().reserved_bytes.current()); }
  void empty_cache() { heap.release(heap.detach_unused()); }

  FakeBacking backing;
  Heap heap{backing};
};

/// The address `bytes` after `address`.
inline void* behind(void* address, std::size_t bytes) {
  return static_cast<std::byte*>(address) + bytes;
}

using openreg::testing::error_of;
using Sizes = std::vector<std::size_t>;

}  // namespace openreg::memory::testing
