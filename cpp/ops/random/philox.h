#pragma once

#include <array>
#include <cstdint>

#include "backend/generator.h"

namespace openreg::ops {

/// How CUDA's random kernels distribute the numbers of a generator, for a device of 132
/// multiprocessors with 2048 threads each. Thread t of the grid draws from subsequence t of Philox
/// 4x32-10. In each round it makes one call, which yields four 32-bit numbers, and makes `unroll`
/// elements from them: `vector` adjacent ones at a time, `threads` vectors apart. Number i of round
/// r is in vector (r * unroll + i) / vector * threads + t. (CUDA splits tensors of 2 GiB and more,
/// and starts again in each part; here there is one part.)
struct PhiloxGrid {
  PhiloxGrid(std::int64_t elements, int unroll, int vector = 1);

  std::int64_t elements;
  int unroll;            ///< elements per call: 4 (of 32 bits each) or 2 (of 64)
  int vector;            ///< divides unroll
  std::int64_t threads;  ///< of the whole grid
  std::int64_t rounds;

  /// The element made from number i of round r of thread t.
  std::int64_t element(std::int64_t round, int i, std::int64_t thread) const {
    return ((round * unroll + i) / vector * threads + thread) * vector + i % vector;
  }
  /// How far the generator's offset advances.
  std::uint64_t numbers() const { return static_cast<std::uint64_t>(rounds) * 4; }
};

/// The four numbers of one call. Pure: D. E. Shaw's Philox 4x32-10 (Salmon et al., SC 2011) with
/// cuRAND's use of the counter: the call in the lower half, the subsequence in the upper one.
[[gnu::always_inline]] inline std::array<std::uint32_t, 4> philox_4x32_10(
    std::uint64_t seed, std::uint64_t call, std::uint64_t subsequence) noexcept {
  constexpr int kRounds = 10;
  auto c0 = static_cast<std::uint32_t>(call);
  auto c1 = static_cast<std::uint32_t>(call >> 32);
  auto c2 = static_cast<std::uint32_t>(subsequence);
  auto c3 = static_cast<std::uint32_t>(subsequence >> 32);
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

/// The numbers of a row of calls: number k of each call in row k.
constexpr std::int64_t kLanes = 1024;  // so that the data stays in the L1 cache
using Raw = std::array<std::array<std::uint32_t, kLanes>, 4>;

/// Draws the call at a generator's offset, a multiple of 4, for `count` subsequences from `first`
/// on.
void draw_subsequences(std::uint64_t seed, std::uint64_t offset, std::uint64_t first,
                       std::int64_t count, Raw& raw) noexcept;

/// Draws `count` calls of subsequence 0, from `first` on.
void draw_calls(std::uint64_t seed, std::uint64_t first, std::int64_t count, Raw& raw) noexcept;

/// Draws the numbers of one subsequence one by one, as cuRAND's state does.
class PhiloxStream {
 public:
  PhiloxStream(backend::PhiloxState philox, std::uint64_t subsequence)
      : seed_(philox.seed), call_(philox.offset / 4), subsequence_(subsequence) {}

  std::uint32_t next() noexcept {
    if (left_ == 0) {
      numbers_ = philox_4x32_10(seed_, call_++, subsequence_);
      left_ = 4;
    }
    return numbers_[4 - left_--];
  }

 private:
  std::uint64_t seed_;
  std::uint64_t call_;
  std::uint64_t subsequence_;
  std::array<std::uint32_t, 4> numbers_{};
  unsigned left_ = 0;
};

}  // namespace openreg::ops
