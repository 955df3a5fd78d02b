#include "ops/wire/signature.h"

#include <algorithm>

namespace openreg::ops {

bool Signature::operator==(const SignatureView& other) const noexcept {
  return hash_ == other.hash && whom_ == other.whom && count_ == other.words.size() &&
         words_.size() == count_ + other.integers.size() &&
         std::equal(other.words.begin(), other.words.end(), words_.begin()) &&
         std::equal(other.integers.begin(), other.integers.end(), words_.begin() + count_);
}

}  // namespace openreg::ops
