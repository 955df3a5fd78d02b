#pragma once

#include <array>
#include <string_view>

#include "slot/refused_dtypes.h"

namespace openreg::ops {

/// Operators that the device has for dtypes of half precision, and the CPU has not: they are
/// computed in float32. None: the device has the CPU's dtypes.
inline constexpr std::array<std::string_view, 0> kHalfOnDeviceOnly{};
/// The same for complex numbers of half precision, in complex64.
inline constexpr std::array<std::string_view, 0> kComplexHalfOnDeviceOnly{};
/// Dtypes that the CPU has and the device refuses.
inline constexpr std::array<RefusedDtypes, 0> kRefusedOnDevice{};

/// The Fourier transform has half precision for all sizes.
inline constexpr bool kHalfTransformsOfPowersOfTwoOnly = false;

}  // namespace openreg::ops
