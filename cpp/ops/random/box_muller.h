#pragma once

#include <cstddef>
#include <cstdint>

namespace openreg::ops {

/// Makes two independent standard normal numbers from each pair (x, y) of random bits, by Box and
/// Muller (1958), as cuRAND does: `first` by the sine, `second` by the cosine. Takes 32 bits of
/// each.
void box_muller(const std::uint32_t* x, const std::uint32_t* y, float* first, float* second,
                std::size_t count) noexcept;

/// Makes standard normal numbers as the other overload does, but takes 53 bits of each number, from
/// (x0, x1) and (y0, y1).
void box_muller(const std::uint32_t* x0, const std::uint32_t* x1, const std::uint32_t* y0,
                const std::uint32_t* y1, double* first, double* second, std::size_t count) noexcept;

/// Random bits as a number in (0, 1], as in cuRAND: the middle of a step of 2^-32, or of 2^-53.
template <class T>
inline T unit_of(std::uint32_t bits) noexcept {
  constexpr T kStep = T(1) / (std::uint64_t{1} << 32);
  return static_cast<T>(bits) * kStep + kStep / 2;
}
inline double unit_of(std::uint32_t low, std::uint32_t high) noexcept {
  constexpr double kStep = 1.0 / (std::uint64_t{1} << 53);
  const auto bits = static_cast<std::int64_t>(low ^ (static_cast<std::uint64_t>(high) << 21));
  return static_cast<double>(bits) * kStep + kStep / 2;
}

}  // namespace openreg::ops
