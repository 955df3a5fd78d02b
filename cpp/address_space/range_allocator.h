#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace openreg {

/// Hands out ranges of addresses from one interval. It never touches them. Addresses and sizes must
/// be multiples of the granularity. Not thread safe.
class RangeAllocator {
 public:
  RangeAllocator(std::uintptr_t begin, std::size_t bytes, std::size_t granularity)
      : begin_(begin), end_(begin + bytes), granularity_(granularity), free_{{begin, bytes}} {}

  /// Takes a free range of `bytes` (more than 0); 0 if there is none. It begins in the middle of
  /// the longest free range if both halves have `room` bytes, so that the new range and the one
  /// before it can both grow (take_at). Otherwise it has the lowest free addresses that suffice.
  std::uintptr_t take(std::size_t bytes, std::size_t room);

  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  /// Takes the lowest free range of `wanted` bytes, a multiple of `unit`; of fewer such units if
  /// that is more than a quarter of the longest free range, so that more ranges can be taken; of 0
  /// bytes if there are none.
  Range take_up_to(std::size_t wanted, std::size_t unit);

  /// Takes exactly this range. False, and nothing is taken, if not all of it is free.
  bool take_at(std::uintptr_t address, std::size_t bytes);

  /// Whether all of this range, which is not empty, has been taken.
  bool is_taken(std::uintptr_t address, std::size_t bytes) const noexcept;

  /// Frees a range that was taken, or any part of one. May throw std::bad_alloc.
  void free(std::uintptr_t address, std::size_t bytes);

 private:
  using Ranges = std::map<std::uintptr_t, std::size_t>;  // begin -> bytes

  Ranges::iterator longest();
  void cut(Ranges::iterator range, std::uintptr_t address, std::size_t bytes);

  std::uintptr_t begin_;
  std::uintptr_t end_;
  std::size_t granularity_;
  Ranges free_;  // no two of them touch
};

}  // namespace openreg
