#include "runtime/range_allocator.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace openreg {

std::uintptr_t RangeAllocator::take(std::size_t bytes) {
  const auto range =
      std::ranges::find_if(free_, [bytes](const auto& entry) { return entry.second >= bytes; });
  if (range == free_.end()) return 0;
  const auto address = range->first;
  taken_.emplace(address, bytes);  // the only step that can fail comes first
  auto rest = free_.extract(range);
  rest.key() += bytes;
  rest.mapped() -= bytes;
  if (rest.mapped() > 0) free_.insert(std::move(rest));
  return address;
}

std::size_t RangeAllocator::size_of(std::uintptr_t address) const noexcept {
  const auto range = taken_.find(address);
  return range == taken_.end() ? 0 : range->second;
}

// Nodes move between the two maps, so that freeing needs no memory and cannot fail.
void RangeAllocator::give_back(std::uintptr_t address) noexcept {
  const auto range = free_.insert(taken_.extract(address)).position;
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == range->first) {
    previous->second += range->second;
    free_.erase(range);
  }
}

}  // namespace openreg
