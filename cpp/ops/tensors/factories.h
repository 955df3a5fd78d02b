#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

namespace openreg {
class Stream;
}

namespace openreg::ops {

/// Whether torch.use_deterministic_algorithms asks for fresh memory to be filled (with NaN, or the
/// largest integer).
bool fills_uninitialized_memory();

/// Uninitialised memory on a device; `device` may be without index (the current one then).
/// NaN-filled where torch.use_deterministic_algorithms asks for it.
at::Tensor empty_on(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype,
                    std::optional<at::MemoryFormat> format = std::nullopt);
at::Tensor empty_strided_on(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            at::ScalarType dtype);

/// The same for the work of `stream`, on its device, of a geometry that is known to be valid:
/// `nbytes` are what `sizes` and `strides` reach into. Nothing is checked.
at::Tensor make_tensor(openreg::Stream& stream, at::IntArrayRef sizes, at::IntArrayRef strides,
                       caffe2::TypeMeta dtype, std::size_t nbytes);

}  // namespace openreg::ops
