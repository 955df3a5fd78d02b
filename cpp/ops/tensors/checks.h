#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <optional>

namespace openreg::ops {

using OptionalTensor = std::optional<at::Tensor>;

inline bool given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

/// The tensor with contiguous memory; undefined if none is given.
inline at::Tensor contiguous(const OptionalTensor& tensor) {
  return given(tensor) ? tensor->contiguous() : at::Tensor();
}

/// Throws c10::NotImplementedError, with the message of ATen's kernels, if the elements of `tensor`
/// are not floating-point numbers of 16, 32 or 64 bits.
inline void expect_floating(const char* kernel, const at::TensorBase& tensor) {
  const auto dtype = tensor.scalar_type();
  const bool takes =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
  TORCH_CHECK_NOT_IMPLEMENTED(takes, "\"", kernel, "\" not implemented for '", dtype, "'");
}

}  // namespace openreg::ops
