#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace openreg::ops {

/// Finds the entries of a growing list by their identity. The few of most calls are compared one
/// after another; from kMostCompared on a hash table finds them, so a command of thousands of
/// tensors costs as much for each of them. `Entries`: a random-access container of entries with a
/// member `identity`, a pointer that does not change.
class IdentityIndex {
 public:
  template <class Entries>
  std::optional<std::size_t> find(const Entries& entries, const void* identity) {
    if (entries.size() > kMostCompared) return find_in_table(entries, identity);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].identity == identity) return i;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMostCompared = 24;

  template <class Entries>
  std::optional<std::size_t> find_in_table(const Entries& entries, const void* identity) {
    if (2 * entries.size() > slots_.size()) {
      slots_.assign(std::bit_ceil(8 * entries.size()), 0);
      known_ = 0;
    }
    for (; known_ < entries.size(); ++known_)
      if (auto& slot = slot_of(entries, entries[known_].identity); slot == 0)
        slot = static_cast<std::uint32_t>(known_ + 1);
    const auto found = slot_of(entries, identity);
    return found == 0 ? std::nullopt : std::optional<std::size_t>(found - 1);
  }

  /// The identity's slot, or the empty one where it belongs.
  template <class Entries>
  std::uint32_t& slot_of(const Entries& entries, const void* identity) {
    // Fibonacci hashing: the addresses of objects differ in their middle bits.
    const auto hash = reinterpret_cast<std::uintptr_t>(identity) * 0x9E3779B97F4A7C15U;
    const auto mask = slots_.size() - 1;
    auto at = static_cast<std::size_t>(hash >> 32) & mask;
    while (slots_[at] != 0 && entries[slots_[at] - 1].identity != identity) at = (at + 1) & mask;
    return slots_[at];
  }

  std::vector<std::uint32_t> slots_;  // numbers of entries, from 1; 0: empty. A power of two
  std::size_t known_ = 0;             // entries in the table
};

}  // namespace openreg::ops
