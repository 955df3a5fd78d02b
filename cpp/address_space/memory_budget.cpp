#include "address_space/memory_budget.h"

#include <algorithm>
#include <limits>

namespace openreg {

namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

}  // namespace

// A segment grows by 2 MiB at a time, and the question takes longer than to map them. So an answer
// leaves a credit, of a part of what is left: other processes take memory, too.
bool MemoryBudget::grants(std::size_t bytes, Clock::time_point now) {
  const LockGuard lock(mutex_);
  if (bytes <= credit_ && now < expires_) {
    credit_ -= bytes;
    return true;
  }
  credit_ = 0;
  const std::size_t left = difference(machine_.left().value_or(kUnknown), machine_.reserve);
  std::size_t rest = difference(left, machine_.mapped());
  if (bytes > rest) rest = difference(left, machine_.untouched());
  if (bytes > rest) return false;
  credit_ = std::min((rest - bytes) / 8, kMostCredit);
  expires_ = now + kValid;
  return true;
}

std::size_t MemoryBudget::left() const {
  const auto left = machine_.left();
  return left ? difference(difference(*left, machine_.reserve), machine_.untouched()) : kUnknown;
}

}  // namespace openreg
