#include "address_space/range_allocator.h"

#include <algorithm>
#include <iterator>

namespace openreg {

RangeAllocator::Ranges::iterator RangeAllocator::longest() {
  return std::ranges::max_element(free_, {}, &Ranges::value_type::second);
}

std::uintptr_t RangeAllocator::take(std::size_t bytes, std::size_t room) {
  auto range = longest();
  if (range == free_.end() || range->second < bytes) return 0;
  const std::size_t half = range->second / 2 / granularity_ * granularity_;
  std::uintptr_t address = range->first + half;
  if (half < std::max(room, bytes)) {
    range = std::ranges::find_if(free_, [&](const auto& r) { return r.second >= bytes; });
    address = range->first;
  }
  cut(range, address, bytes);
  return address;
}

RangeAllocator::Range RangeAllocator::take_up_to(std::size_t wanted, std::size_t unit) {
  const auto range = longest();
  if (range == free_.end()) return {};
  const std::size_t bytes = std::min(wanted, range->second / 4) / unit * unit;
  if (bytes == 0) return {};
  return {take(bytes, range->second), bytes};
}

bool RangeAllocator::take_at(std::uintptr_t address, std::size_t bytes) {
  const auto after = free_.upper_bound(address);
  if (after == free_.begin()) return false;
  const auto range = std::prev(after);
  const std::size_t offset = address - range->first;
  if (offset > range->second || bytes > range->second - offset) return false;
  cut(range, address, bytes);
  return true;
}

// Takes a piece out of a free range. The operation that can fail comes first.
void RangeAllocator::cut(Ranges::iterator range, std::uintptr_t address, std::size_t bytes) {
  const std::size_t before = address - range->first;
  const std::size_t after = range->second - before - bytes;
  if (after > 0) free_.emplace(address + bytes, after);
  if (before > 0) {
    range->second = before;
  } else {
    free_.erase(range);
  }
}

bool RangeAllocator::is_taken(std::uintptr_t address, std::size_t bytes) const noexcept {
  if (address < begin_ || address > end_ || bytes == 0 || bytes > end_ - address) return false;
  const auto after = free_.lower_bound(address + bytes);
  if (after == free_.begin()) return true;
  const auto& [begin, size] = *std::prev(after);
  return begin + size <= address;
}

void RangeAllocator::free(std::uintptr_t address, std::size_t bytes) {
  const auto range = free_.emplace(address, bytes).first;
  const auto next = std::next(range);
  if (next != free_.end() && address + bytes == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == address) {
    previous->second += range->second;
    free_.erase(range);
  }
}

}  // namespace openreg
