#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <span>

namespace openreg::ops {

inline constexpr std::array kHalfDtypes{c10::kHalf, c10::kBFloat16};
inline constexpr std::array kComplexHalfDtypes{c10::kComplexHalf};

// Note [Half precision]
// For products, convolutions and attention of float16, and of bfloat16 on older processors,
// PyTorch's CPU library has scalar kernels only: they take 5 to 94 times as long as those of
// float32. So the operators with Quirk::kSlowInHalf are computed in float32 on such a processor:
// their tensors are converted, the kernel of float32 runs, and its results are rounded once. That
// is at least as accurate as the CPU's kernel, and as CUDA's, which accumulate in float32. So are
// those with Quirk::kScalarInHalf, on every processor. benchmarks/dtypes.py finds such operators.
// In the same way dtypes are computed that CUDA has kernels for, and the CPU has not (quirks.cpp).

/// What decides whether there are fast kernels for a dtype of half precision.
struct HalfInstructions {
  bool float16 = false;
  bool bfloat16 = false;

  /// The instructions of this processor.
  static HalfInstructions here();
  /// The dtypes that it has none for.
  std::span<const c10::ScalarType> missing() const;
};

/// Whether the processor has instructions that convert between float16 and float32.
bool has_f16c() noexcept;

}  // namespace openreg::ops
