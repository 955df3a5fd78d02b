#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>

namespace openreg::ops {

/// Bytes of storage that a tensor of this geometry needs; 0 for one without elements. Empty
/// `strides`: contiguous. Throws c10::Error, with ATen's message, if a number overflows or `offset`
/// is negative.
std::size_t bytes_needed(at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t itemsize,
                         std::int64_t offset);

/// Makes a device storage at least `nbytes` long, in order on the current stream; keeps its
/// contents. Throws as backend::resize_storage() does if it must grow.
void grow_storage(const c10::Storage& storage, std::size_t nbytes);

/// A resizable storage of 0 bytes on a device.
c10::Storage empty_storage(c10::Device device);

}  // namespace openreg::ops
