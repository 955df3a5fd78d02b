#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace openreg {

/// Hands out ranges of addresses from one interval. It never touches them. Addresses and sizes are
/// multiples of a granularity, which is the caller's to keep. Not thread safe.
class RangeAllocator {
 public:
  RangeAllocator(std::uintptr_t begin, std::size_t bytes, std::size_t granularity)
      : begin_(begin), end_(begin + bytes), granularity_(granularity), free_{{begin, bytes}} {}

  /// A free range of `bytes` (more than 0), or 0 if there is none. In the middle of the longest
  /// free range as long as both halves are of `room` bytes: what lies before and what comes here
  /// can grow (take_at). Else the lowest.
  std::uintptr_t take(std::size_t bytes, std::size_t room);

  /// Takes just this range; false, and nothing is taken, if not all of it is free.
  bool take_at(std::uintptr_t address, std::size_t bytes);

  /// All of this range, which is not empty, has been taken.
  bool is_taken(std::uintptr_t address, std::size_t bytes) const noexcept;

  /// Makes a range free again: what was taken at once, or any part of it.
  void give_back(std::uintptr_t address, std::size_t bytes);

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
