#pragma once

#include <cstddef>

namespace openreg {

/// The smallest multiple of `granularity` that is not less than `n`; 0 if that would overflow.
constexpr std::size_t round_up(std::size_t n, std::size_t granularity) {
  return (n + granularity - 1) / granularity * granularity;
}

}  // namespace openreg
