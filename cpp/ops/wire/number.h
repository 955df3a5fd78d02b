#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace openreg::ops {

/// A number among the arguments of a call, and what part of it can affect how the call ends. Most
/// numbers only scale: for those, the sign is enough. A number counts by its value if it may not
/// fit a dtype of the call, or is infinite or NaN.
class Number {
 public:
  explicit Number(const c10::Scalar& value);

  /// The greatest magnitude that `dtype` holds; 0 if that is not defined.
  static double greatest(c10::ScalarType dtype) noexcept;

  /// Calls `add(word)` with the words by which calls are compared. `greatest`: the smallest of
  /// greatest() of the call's dtypes.
  template <class Add>
  void add_to_signature(double greatest, Add&& add) const {
    const auto kind = static_cast<std::uint64_t>(type_) << 8;
    if (magnitude_ <= greatest) {
      add(kind | (magnitude_ == 0 ? 0U : negative_ ? 1U : 2U));
    } else {
      add_value(add);
    }
  }
  /// Calls `add(word)` with the words of the number's value.
  template <class Add>
  void add_value(Add&& add) const {
    add(static_cast<std::uint64_t>(type_) << 8 | 3U);
    add(bits_);
    add(imaginary_bits_);
  }

 private:
  c10::ScalarType type_;
  bool negative_ = false;
  double magnitude_;  // infinite if it always counts by its value
  std::uint64_t bits_;
  std::uint64_t imaginary_bits_ = 0;
};

}  // namespace openreg::ops
