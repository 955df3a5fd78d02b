#include "ops/random/philox.h"

#include <algorithm>

#include "ops/launch/vector_clones.h"

namespace openreg::ops {

namespace {

constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kThreadsPerMultiprocessor = 2048;
constexpr std::int64_t kThreadsPerBlock = 256;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

PhiloxGrid::PhiloxGrid(std::int64_t elements, int unroll, int vector)
    : elements(elements),
      unroll(unroll),
      vector(vector),
      threads(kThreadsPerBlock *
              std::min(divide_up(elements, kThreadsPerBlock),
                       kMultiprocessors * (kThreadsPerMultiprocessor / kThreadsPerBlock))),
      rounds(divide_up(elements, std::max<std::int64_t>(threads * unroll, 1))) {}

OPENREG_VECTOR_CLONES
void draw_subsequences(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                       std::int64_t count, Raw& raw) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto numbers = philox_4x32_10(seed, offset / 4, first + static_cast<std::uint64_t>(i));
    for (int k = 0; k < 4; ++k) raw[k][i] = numbers[k];
  }
}

OPENREG_VECTOR_CLONES
void draw_calls(std::uint64_t seed, std::uint64_t first, std::int64_t count, Raw& raw) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto numbers = philox_4x32_10(seed, first + static_cast<std::uint64_t>(i), 0);
    for (int k = 0; k < 4; ++k) raw[k][i] = numbers[k];
  }
}

}  // namespace openreg::ops
