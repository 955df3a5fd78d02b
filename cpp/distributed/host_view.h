#pragma once

#include <ATen/core/Tensor.h>

namespace openreg::distributed {

// CPU tensors over the memory of contiguous device tensors, for Gloo. They keep nothing alive.

/// With the same shape and dtype.
at::Tensor host_view(const at::Tensor& tensor);
/// Its bytes: collectives that only move elements handle all dtypes this way.
at::Tensor host_bytes(const at::Tensor& tensor);

}  // namespace openreg::distributed
