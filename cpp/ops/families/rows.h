#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace openreg::ops {

/// The sum of `term(i)` for i below n, in parts that the compiler can keep in one vector.
template <class Real, class Term>
[[gnu::always_inline]] inline Real sum_of(std::int64_t n, Term&& term) {
  constexpr std::int64_t kParts = 32;
  std::array<Real, kParts> parts{};
  std::int64_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (std::int64_t k = 0; k < kParts; ++k) parts[k] += term(i + k);
  for (; i < n; ++i) parts[0] += term(i);
  Real sum = 0;
  for (const Real part : parts) sum += part;
  return sum;
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
