#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace openreg::ops {

template <class Real, std::size_t n>
using Sums = std::array<Real, n>;

/// The sums of the numbers that `terms(i)` returns, a Sums, for begin <= i < end: in parts that the
/// compiler can keep in one vector.
template <class Real, std::size_t kSums, class Terms>
[[gnu::always_inline]] inline Sums<Real, kSums> sums_of_block(std::int64_t begin, std::int64_t end,
                                                              Terms&& terms) {
  constexpr std::int64_t kParts = 32;
  Sums<std::array<Real, kParts>, kSums> parts{};
  const auto add = [&](std::int64_t i, std::int64_t part) {
    const Sums<Real, kSums> term = terms(i);
    for (std::size_t s = 0; s < kSums; ++s) parts[s][part] += term[s];
  };
  std::int64_t i = begin;
  for (; i + kParts <= end; i += kParts)
    for (std::int64_t k = 0; k < kParts; ++k) add(i + k, k);
  for (std::int64_t k = 0; i < end; ++i, ++k) add(i, k);
  Sums<Real, kSums> sums;
  for (std::size_t s = 0; s < kSums; ++s) {
    for (std::int64_t half = kParts / 2; half > 0; half /= 2)
      for (std::int64_t k = 0; k < half; ++k) parts[s][k] += parts[s][k + half];
    sums[s] = parts[s][0];
  }
  return sums;
}

/// The sums of the numbers that `terms(i)` returns, a Sums, for i < n. The sums of blocks are added
/// pairwise, so that the error hardly grows with n.
template <class Real, std::size_t kSums, class Terms>
[[gnu::always_inline]] inline Sums<Real, kSums> sums_of(std::int64_t n, Terms&& terms) {
  constexpr std::int64_t kBlock = 2048;
  const auto add = [](Sums<Real, kSums>& to, const Sums<Real, kSums>& from) {
    for (std::size_t s = 0; s < kSums; ++s) to[s] += from[s];
  };
  std::array<Sums<Real, kSums>, 64> waiting;  // at k, if bit k of `blocks` is set: 2^k blocks
  std::uint64_t blocks = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock, ++blocks) {
    auto sums = sums_of_block<Real, kSums>(begin, std::min(begin + kBlock, n), terms);
    std::size_t k = 0;
    for (; (blocks >> k) & 1; ++k) add(sums, waiting[k]);
    waiting[k] = sums;
  }
  Sums<Real, kSums> sums{};
  for (std::size_t k = 0; (blocks >> k) != 0; ++k)
    if ((blocks >> k) & 1) add(sums, waiting[k]);
  return sums;
}

/// The sum of `term(i)` for i < n, added as by sums_of().
template <class Real, class Term>
[[gnu::always_inline]] inline Real sum_of(std::int64_t n, Term&& term) {
  return sums_of<Real, 1>(n, [&](std::int64_t i) { return Sums<Real, 1>{term(i)}; })[0];
}

/// Calls `f` with the number of each row of `size` elements, on several threads.
template <class F>
void for_each_row(std::int64_t rows, std::int64_t size, F&& f) {
  constexpr std::int64_t kGrainElements = 16 * 1024;
  const auto grain = std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(size, 1));
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace openreg::ops
