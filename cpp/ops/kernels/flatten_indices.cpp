// The positions of a sparse tensor's elements as linear indices in row-major order. PyTorch uses
// them to check whether a COO tensor that claims to be coalesced really is. Its composite code
// calls ATen's kernel for the device.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "slot.h"

namespace at::native {

// Declared in an ATen header that is not shipped with PyTorch.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

}  // namespace at::native

namespace openreg::ops {

namespace {

/// \param indices int64 [sparse dimensions, elements]. \param size the sizes of the sparse
/// dimensions.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef size) {
  std::vector<std::int64_t> strides(size.size(), 1);
  for (auto i = std::ssize(size) - 2; i >= 0; --i) strides[i] = strides[i + 1] * size[i + 1];
  return at::tensor(strides, indices.options()).unsqueeze(1).mul(indices).sum(0);
}

}  // namespace

}  // namespace openreg::ops

namespace at::native {

OPENREG_REGISTER_DISPATCH(flatten_indices_stub, &openreg::ops::flatten_indices)

}  // namespace at::native
