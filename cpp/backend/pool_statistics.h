#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace openreg::backend {

/// A number that moves, its highest value, and what was added and removed, each since its last
/// reset.
struct Counter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void add(std::int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void remove(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

enum class SizeClass : std::uint8_t { kSmall, kLarge };

/// A counter over all blocks, and over the small and the large ones.
struct ClassCounter {
  Counter all;
  Counter small;
  Counter large;

  void add(SizeClass size_class, std::int64_t amount) {
    all.add(amount);
    of(size_class).add(amount);
  }
  void remove(SizeClass size_class, std::int64_t amount) {
    all.remove(amount);
    of(size_class).remove(amount);
  }
  Counter& of(SizeClass size_class) { return size_class == SizeClass::kSmall ? small : large; }
};

/// What PyTorch reports of an allocator (torch.accelerator.memory_stats), by PyTorch's names.
struct PoolStatistics {
  ClassCounter allocation;            ///< blocks that the program holds
  ClassCounter segment;               ///< segments mapped from the device
  ClassCounter active;                ///< blocks that the program holds or that streams still use
  ClassCounter inactive_split;        ///< free blocks whose segment has others that are not
  ClassCounter allocated_bytes;       ///< bytes in `allocation`, with rounding
  ClassCounter reserved_bytes;        ///< bytes in `segment`
  ClassCounter active_bytes;          ///< bytes in `active`
  ClassCounter inactive_split_bytes;  ///< bytes in `inactive_split`
  ClassCounter requested_bytes;       ///< bytes in `allocation`, as asked for
  std::int64_t device_maps = 0;       ///< segments mapped so far
  std::int64_t device_unmaps = 0;     ///< segments given back so far

  std::array<ClassCounter*, 9> counters() {
    return {&allocation,      &segment,        &active,       &inactive_split,
            &allocated_bytes, &reserved_bytes, &active_bytes, &inactive_split_bytes,
            &requested_bytes};
  }
  void reset_peak() {
    for (auto* c : counters()) {
      for (auto* each : {&c->all, &c->small, &c->large}) each->reset_peak();
    }
  }
  void reset_accumulated() {
    for (auto* c : counters()) {
      for (auto* each : {&c->all, &c->small, &c->large}) each->reset_accumulated();
    }
    device_maps = device_unmaps = 0;
  }
};

}  // namespace openreg::backend
