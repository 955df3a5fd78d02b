#pragma once

#include <c10/util/Half.h>

#include <cstdint>

namespace openreg::ops {

/// Converts elements of float16, with the processor's vectors where it can: C++ converts them one
/// by one, which takes longer than most kernels.
void to_floats(const c10::Half* from, float* to, std::int64_t count) noexcept;
/// Rounds to the nearest, ties to even.
void to_halves(const float* from, c10::Half* to, std::int64_t count) noexcept;

}  // namespace openreg::ops
