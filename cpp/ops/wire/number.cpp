#include "ops/wire/number.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace openreg::ops {

namespace {

constexpr double kAlwaysByValue = std::numeric_limits<double>::infinity();

template <class T>
constexpr double greatest_of() {
  return static_cast<double>(std::numeric_limits<T>::max());
}

constexpr auto kGreatest = [] {
  std::array<double, static_cast<std::size_t>(c10::ScalarType::NumOptions)> table{};
  const auto set = [&table](c10::ScalarType dtype, double value) {
    table[static_cast<std::size_t>(dtype)] = value;
  };
  set(c10::ScalarType::Bool, 1);
  set(c10::ScalarType::Byte, greatest_of<std::uint8_t>());
  set(c10::ScalarType::Char, greatest_of<std::int8_t>());
  set(c10::ScalarType::Short, greatest_of<std::int16_t>());
  set(c10::ScalarType::Int, greatest_of<std::int32_t>());
  set(c10::ScalarType::Long, 0x1p62);
  set(c10::ScalarType::UInt16, greatest_of<std::uint16_t>());
  set(c10::ScalarType::UInt32, greatest_of<std::uint32_t>());
  set(c10::ScalarType::UInt64, 0x1p62);
  set(c10::ScalarType::Half, 65504);
  set(c10::ScalarType::ComplexHalf, 65504);
  set(c10::ScalarType::BFloat16, 0x1p127);
  set(c10::ScalarType::Float, 0x1p127);
  set(c10::ScalarType::ComplexFloat, 0x1p127);
  set(c10::ScalarType::Double, greatest_of<double>());
  set(c10::ScalarType::ComplexDouble, greatest_of<double>());
  return table;
}();

}  // namespace

Number::Number(const c10::Scalar& value) : type_(value.type()) {
  if (value.isComplex()) {
    const auto number = value.toComplexDouble();
    magnitude_ = kAlwaysByValue;
    bits_ = std::bit_cast<std::uint64_t>(number.real());
    imaginary_bits_ = std::bit_cast<std::uint64_t>(number.imag());
  } else if (value.isFloatingPoint()) {
    const double number = value.toDouble();
    negative_ = number < 0;
    magnitude_ = std::isfinite(number) ? std::fabs(number) : kAlwaysByValue;
    bits_ = std::bit_cast<std::uint64_t>(number);
  } else if (value.type() == c10::ScalarType::UInt64) {
    bits_ = value.toUInt64();
    magnitude_ = static_cast<double>(bits_);
  } else {
    const auto number = value.toLong();
    negative_ = number < 0;
    magnitude_ = std::fabs(static_cast<double>(number));
    bits_ = static_cast<std::uint64_t>(number);
  }
}

double Number::greatest(c10::ScalarType dtype) noexcept {
  return kGreatest[static_cast<std::size_t>(dtype)];
}

}  // namespace openreg::ops
