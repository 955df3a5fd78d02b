// Compiled with -ffast-math if the compiler is GCC: it then uses the C library's vector functions
// for logarithm, sine and cosine (a factor of seven), with one loop for each. They differ from the
// scalar functions by an ulp or two. No value here is infinite or NaN.
#include "ops/random/box_muller.h"

#include <cmath>
#include <numbers>

#include "ops/launch/vector_clones.h"

namespace openreg::ops {

namespace {

template <class T>
constexpr T kTurn = 2 * std::numbers::pi_v<T>;

inline float angle_of(std::uint32_t bits) {
  constexpr float kStep = kTurn<float> / (std::uint64_t{1} << 32);
  return static_cast<float>(bits) * kStep + kStep / 2;
}

}  // namespace

OPENREG_VECTOR_CLONES
void box_muller(const std::uint32_t* __restrict x, const std::uint32_t* __restrict y,
                float* __restrict first, float* __restrict second, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    second[i] = std::sqrt(-2 * std::log(unit_of<float>(x[i])));
  for (std::size_t i = 0; i < count; ++i) first[i] = std::sin(angle_of(y[i])) * second[i];
  for (std::size_t i = 0; i < count; ++i) second[i] *= std::cos(angle_of(y[i]));
}

OPENREG_VECTOR_CLONES
void box_muller(const std::uint32_t* __restrict x0, const std::uint32_t* __restrict x1,
                const std::uint32_t* __restrict y0, const std::uint32_t* __restrict y1,
                double* __restrict first, double* __restrict second, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    second[i] = std::sqrt(-2 * std::log(unit_of(x0[i], x1[i])));
  for (std::size_t i = 0; i < count; ++i)
    first[i] = std::sin(kTurn<double> * unit_of(y0[i], y1[i])) * second[i];
  for (std::size_t i = 0; i < count; ++i)
    second[i] *= std::cos(kTurn<double> * unit_of(y0[i], y1[i]));
}

}  // namespace openreg::ops
