#pragma once

#include <ATen/core/Tensor.h>

namespace openreg::distributed {

// CPU tensors over the memory of device tensors, for Gloo. They keep nothing alive. Tensors of
// other devices, which take the place of the device's (Movement), are returned as they are.

/// The CPU tensor of the same shape and dtype. `tensor` is contiguous.
at::Tensor host_view(const at::Tensor& tensor);
/// The bytes of `tensor`, which is contiguous: collectives that only move elements handle all
/// dtypes this way.
at::Tensor host_bytes(const at::Tensor& tensor);
/// The CPU tensor of the same shape, strides and dtype; conjugated and negated as `tensor` is.
at::Tensor strided_host_view(const at::Tensor& tensor);

}  // namespace openreg::distributed
