#pragma once

#include <array>
#include <string_view>

namespace openreg::ops {

/// Operators that the device has for dtypes of half precision, and the CPU has not: they are
/// computed in float32, and rounded once. With '*' at the end: all that begin like this. These have
/// meta functions; for the others, see dtypes.cpp.
inline constexpr auto kHalfOnDeviceOnly = std::to_array<std::string_view>({
    "aten::_upsample_bicubic2d_aa*",
    "aten::_upsample_bilinear2d_aa*",
    "aten::_upsample_lanczos2d_aa*",
    "aten::avg_pool3d*",
});

/// The same for complex numbers of half precision, in complex64.
inline constexpr auto kComplexHalfOnDeviceOnly = std::to_array<std::string_view>({
    "aten::acos",
    "aten::acosh",
    "aten::asin",
    "aten::asinh",
    "aten::atan",
    "aten::atanh",
    "aten::cos",
    "aten::cosh",
    "aten::cumprod",
    "aten::cumsum",
    "aten::div.Tensor",
    "aten::exp",
    "aten::lerp.Scalar",
    "aten::lerp.Tensor",
    "aten::log",
    "aten::logaddexp",
    "aten::pow.Scalar",
    "aten::pow.Tensor_Scalar",
    "aten::pow.Tensor_Tensor",
    "aten::prod.dim_int",
    "aten::reciprocal",
    "aten::rsqrt",
    "aten::sgn",
    "aten::sigmoid",
    "aten::sigmoid_backward",
    "aten::sin",
    "aten::sinh",
    "aten::sqrt",
    "aten::sum.dim_IntList",
    "aten::tan",
    "aten::tanh",
    "aten::tanh_backward",
});

}  // namespace openreg::ops
