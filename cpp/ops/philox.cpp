#include "ops/philox.h"

#include <algorithm>

#include "ops/vector_clones.h"

namespace openreg::ops {

namespace {

constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kThreadsPerMultiprocessor = 2048;
constexpr std::int64_t kThreadsPerBlock = 256;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Halves {
  std::uint32_t high;
  std::uint32_t low;
};
inline Halves multiply(std::uint32_t a, std::uint32_t b) noexcept {
  const auto product = static_cast<std::uint64_t>(a) * b;
  return {static_cast<std::uint32_t>(product >> 32), static_cast<std::uint32_t>(product)};
}

}  // namespace

PhiloxGrid::PhiloxGrid(std::int64_t elements, int unroll)
    : elements(elements),
      unroll(unroll),
      threads(kThreadsPerBlock *
              std::min(divide_up(elements, kThreadsPerBlock),
                       kMultiprocessors * (kThreadsPerMultiprocessor / kThreadsPerBlock))),
      rounds(divide_up(elements, std::max<std::int64_t>(threads * unroll, 1))) {}

OPENREG_VECTOR_CLONES
void philox_4x32_10(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                    std::size_t count, std::uint32_t* __restrict x, std::uint32_t* __restrict y,
                    std::uint32_t* __restrict z, std::uint32_t* __restrict w) noexcept {
  constexpr int kRounds = 10;
  const std::uint64_t call = offset / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t subsequence = first + i;
    auto c0 = static_cast<std::uint32_t>(call);
    auto c1 = static_cast<std::uint32_t>(call >> 32);
    auto c2 = static_cast<std::uint32_t>(subsequence);
    auto c3 = static_cast<std::uint32_t>(subsequence >> 32);
    auto k0 = static_cast<std::uint32_t>(seed);
    auto k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      const auto a = multiply(0xD2511F53, c0);
      const auto b = multiply(0xCD9E8D57, c2);
      c0 = b.high ^ c1 ^ k0;
      c1 = b.low;
      c2 = a.high ^ c3 ^ k1;
      c3 = a.low;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    x[i] = c0;
    y[i] = c1;
    z[i] = c2;
    w[i] = c3;
  }
}

}  // namespace openreg::ops
