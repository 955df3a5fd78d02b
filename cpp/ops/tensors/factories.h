#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

#include "ops/launch/call_plan.h"

namespace openreg {
class Stream;
}

namespace openreg::ops {

/// Whether torch.use_deterministic_algorithms requires fresh memory to be filled (with NaN, or the
/// largest integer).
bool fills_uninitialized_memory();

/// A tensor of uninitialised memory on a device; a `device` without an index is the current one.
/// Filled if torch.use_deterministic_algorithms requires it. Throws c10::Error as ATen's factories
/// do, and as backend::allocate_for() does.
at::Tensor empty_on(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype,
                    std::optional<at::MemoryFormat> format = std::nullopt);
at::Tensor empty_strided_on(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            at::ScalarType dtype);

/// Like empty_strided_on(), for work of `stream`, on its device, with a geometry that is known to
/// be valid: `nbytes` is at least what `sizes` and `strides` require. Neither is checked.
at::Tensor make_tensor(openreg::Stream& stream, at::IntArrayRef sizes, at::IntArrayRef strides,
                       caffe2::TypeMeta dtype, std::size_t nbytes);

/// The result of a planned call, made as by make_tensor(); undefined if `geometry` is. Throws
/// c10::Error for the runtime's errors.
at::Tensor make_result(openreg::Stream& stream, const Geometry& geometry);

}  // namespace openreg::ops
