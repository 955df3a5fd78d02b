#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace openreg {

/// Hands out ranges of addresses from one interval, first fit. It never touches them. Sizes are the
/// caller's to round. Not thread safe.
class RangeAllocator {
 public:
  RangeAllocator(std::uintptr_t begin, std::size_t bytes) : free_{{begin, bytes}} {}

  /// The lowest free range of `bytes` (more than 0), or 0 if there is none. Unchanged if it throws
  /// std::bad_alloc.
  std::uintptr_t take(std::size_t bytes);

  /// Size of the taken range that begins at `address`; 0 if none does.
  std::size_t size_of(std::uintptr_t address) const noexcept;

  /// Makes the taken range that begins at `address` free again.
  void give_back(std::uintptr_t address) noexcept;

 private:
  using Ranges = std::map<std::uintptr_t, std::size_t>;  // begin -> bytes
  Ranges free_;                                          // no two of them touch
  Ranges taken_;
};

}  // namespace openreg
