#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>

namespace openreg::ops {

/// The number of elements from a tensor's first to its last one, both included; 0 if it has none.
inline std::int64_t extent_of(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}
inline std::int64_t extent_of(const c10::TensorImpl& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.numel();
  return extent_of(tensor.sizes(), tensor.strides());
}

/// The bytes of this many elements, the first of which begins at a byte.
std::size_t bytes_of(std::size_t elements, c10::ScalarType dtype);

/// Throws c10::Error unless a storage of `nbytes` contains the elements of `tensor`, which end
/// before its element `end`.
void check_memory(const c10::TensorImpl& tensor, std::int64_t end, std::size_t nbytes);

/// Throws c10::Error unless a storage of `nbytes` contains all elements of `tensor`, which begins
/// at its element `offset`. Storages can be resized to less than the tensors on them need (FSDP
/// frees memory that way), and kernels do not check that.
inline void expect_memory(const c10::TensorImpl& tensor, std::int64_t offset, std::size_t nbytes) {
  const auto extent = extent_of(tensor);
  const auto needed = static_cast<std::size_t>(offset + extent) * tensor.itemsize();
  if (needed > nbytes && extent != 0) [[unlikely]]
    check_memory(tensor, offset + extent, nbytes);
}
inline void expect_memory(const at::TensorBase& tensor) {
  expect_memory(*tensor.unsafeGetTensorImpl(), tensor.storage_offset(), tensor.storage().nbytes());
}

}  // namespace openreg::ops
