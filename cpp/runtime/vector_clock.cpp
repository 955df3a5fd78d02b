#include "runtime/vector_clock.h"

#include <algorithm>
#include <utility>

namespace openreg {

std::uint64_t VectorClock::number_of(std::uint32_t stream) const noexcept {
  const std::uint64_t number = numbers_ && stream < numbers_->size() ? (*numbers_)[stream] : 0;
  return stream == last_.stream ? std::max(number, last_.number) : number;
}

bool VectorClock::join(const VectorClock& other) {
  bool changes = !includes(other.last_);
  if (other.numbers_ && other.numbers_ != numbers_) {
    for (std::uint32_t i = 1; i < other.numbers_->size() && !changes; ++i)
      changes = (*other.numbers_)[i] > number_of(i);
  }
  if (!changes) return false;
  auto numbers = numbers_ ? *numbers_ : Numbers();
  const auto theirs = other.numbers_ ? other.numbers_->size() : 0;
  numbers.resize(std::max({numbers.size(), theirs, std::size_t{other.last_.stream} + 1}));
  for (std::size_t i = 0; i < theirs; ++i) numbers[i] = std::max(numbers[i], (*other.numbers_)[i]);
  auto& last = numbers[other.last_.stream];
  last = std::max(last, other.last_.number);
  numbers_ = std::make_shared<const Numbers>(std::move(numbers));
  return true;
}

}  // namespace openreg
