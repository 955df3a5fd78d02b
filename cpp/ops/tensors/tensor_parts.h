#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/SmallVector.h>

namespace openreg::ops {

/// The strided tensors of which a tensor consists: indices and values of a sparse tensor, scales
/// and zero points of one that is quantized by channels. Most tensors have none, only their
/// storage.
using TensorParts = c10::SmallVector<at::Tensor, 3>;

/// Empty for a tensor that consists of its storage alone.
TensorParts parts_of(const at::Tensor& tensor);

/// A new tensor with the layout, dtype, geometry and bits of `like`, for `backend`, made of `parts`
/// (in the order of parts_of(like)) and `storage` (null for a sparse tensor). Throws
/// NotImplementedError for layouts other than strided, COO, CSR, CSC, BSR and BSC.
at::Tensor rebuild(const at::Tensor& like, c10::Storage storage, const TensorParts& parts,
                   c10::BackendComponent backend);

/// Applies to `tensor` what a kernel changed in `like`, a tensor of the same layout, besides its
/// elements and its storage: its parts, which are `parts` here, and its geometry.
void take_over(const at::Tensor& tensor, const at::Tensor& like, const TensorParts& parts);

}  // namespace openreg::ops
