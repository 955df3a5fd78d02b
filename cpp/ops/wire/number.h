#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace openreg::ops {

/// A number among the arguments of a call, and what of it decides how the call ends. Most numbers
/// only scale: of those, the sign is enough. What may not fit a dtype of the call, and what is
/// infinite or no number, counts by its value.
class Number {
 public:
  explicit Number(const c10::Scalar& value);

  /// The greatest magnitude that `dtype` holds; 0 where that cannot be said.
  static double greatest(c10::ScalarType dtype) noexcept;

  /// Calls `add(word)` with what a call is compared by. `greatest`: the least of those of the
  /// dtypes of the call.
  template <class Add>
  void sign(double greatest, Add&& add) const {
    const auto kind = static_cast<std::uint64_t>(type_) << 8;
    if (magnitude_ <= greatest) {
      add(kind | (magnitude_ == 0 ? 0U : negative_ ? 1U : 2U));
    } else {
      sign_exactly(add);
    }
  }
  template <class Add>
  void sign_exactly(Add&& add) const {
    add(static_cast<std::uint64_t>(type_) << 8 | 3U);
    add(bits_);
    add(imaginary_bits_);
  }

 private:
  c10::ScalarType type_;
  bool negative_ = false;
  double magnitude_;  // infinite for what always counts by its value
  std::uint64_t bits_;
  std::uint64_t imaginary_bits_ = 0;
};

}  // namespace openreg::ops
