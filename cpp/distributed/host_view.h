#pragma once

#include <ATen/core/Tensor.h>

namespace openreg::distributed {

// CPU tensors over the memory of contiguous device tensors, for Gloo. They keep nothing alive.

/// The CPU tensor of the same shape and dtype.
at::Tensor host_view(const at::Tensor& tensor);
/// The bytes of `tensor`: collectives that only move elements handle all dtypes this way.
at::Tensor host_bytes(const at::Tensor& tensor);

}  // namespace openreg::distributed
