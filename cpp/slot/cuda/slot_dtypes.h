#pragma once

#include <array>
#include <string_view>

#include "slot/refused_dtypes.h"

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

inline constexpr auto kIntegers =
    std::to_array({c10::kByte, c10::kChar, c10::kShort, c10::kInt, c10::kLong});
inline constexpr auto kLongOnly = std::to_array({c10::kLong});
inline constexpr auto kByteOnly = std::to_array({c10::kByte});
inline constexpr auto kHalves = std::to_array({c10::kHalf, c10::kBFloat16});
inline constexpr auto kFloats = std::to_array({c10::kFloat, c10::kDouble});

/// Dtypes that the CPU has and CUDA has not: a program that uses them fails on a GPU.
inline constexpr auto kRefusedOnDevice = std::to_array<RefusedDtypes>({
    {"aten::_histogramdd_bin_edges", kFloats, "histogramdd"},
    {"aten::_histogramdd_from_bin_cts", kFloats, "histogramdd"},
    {"aten::_histogramdd_from_bin_tensors", kFloats, "histogramdd"},
    {"aten::_upsample_bicubic2d_aa", kByteOnly, "upsample_bicubic2d_aa_out_frame"},
    {"aten::_upsample_bilinear2d_aa", kByteOnly, "upsample_bilinear2d_aa_out_frame"},
    {"aten::addbmm", kIntegers, "addmm_cuda"},
    {"aten::addmm", kIntegers, "addmm_cuda"},
    {"aten::addmv", kIntegers, "addmv_impl_cuda"},
    {"aten::avg_pool2d", kLongOnly, "avg_pool2d_out_cuda_frame"},
    {"aten::avg_pool3d", kLongOnly, "avg_pool3d_out_cuda"},
    {"aten::baddbmm", kIntegers, "baddbmm_cuda"},
    {"aten::bmm", kIntegers, "baddbmm_cuda"},
    {"aten::convolution", kIntegers, "slow_conv2d_cuda"},
    {"aten::dot", kIntegers, "dot"},
    {"aten::histc", kHalves, "histc"},
    {"aten::histogram", kFloats, "histogram"},
    {"aten::igamma", kHalves, "igamma_cuda"},
    {"aten::igammac", kHalves, "igammac_cuda"},
    {"aten::max_pool2d_with_indices", kIntegers, "max_pool2d_with_indices_out_cuda_frame"},
    {"aten::max_pool3d_with_indices", kIntegers, "max_pool3d_with_indices_out_frame"},
    {"aten::mm", kIntegers, "addmm_cuda"},
    {"aten::mv", kIntegers, "addmv_impl_cuda"},
    {"aten::upsample_bicubic2d", kByteOnly, "upsample_bicubic2d_out_frame"},
    {"aten::upsample_bilinear2d", kByteOnly, "upsample_bilinear2d_out_frame"},
    {"aten::vdot", kIntegers, "dot"},
});

/// The Fourier transform has half precision for powers of two only.
inline constexpr bool kHalfTransformsOfPowersOfTwoOnly = true;

}  // namespace openreg::ops
