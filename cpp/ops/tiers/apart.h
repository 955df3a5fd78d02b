#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <span>

namespace openreg::ops {

// Note [Outputs of any strides]
//
// Many of the CPU's kernels write the output of an out form as if it were contiguous: into the gaps
// of a view, and beyond the end of one that overlaps itself. Some divide by the strides of
// dimensions of one element, some compute the losses of all elements in the memory of their mean,
// others give the output the strides that suit them. The device keeps and respects the strides of
// an output, as most of CUDA's kernels do: a kernel that might not do so computes *apart*, into an
// output of its own, which is then copied. Kernels that iterate over elements write any strides,
// except for those with a quirk (quirks.h).

/// Whether the strides are those of a new tensor, also for dimensions of one element.
bool has_default_strides(const at::Tensor& tensor);
bool have_default_strides(std::span<const at::Tensor> tensors);

/// Calls `use` with each tensor of an argument that has the same storage as `output`.
void for_tensors_in_memory_of(const at::Tensor& output, const c10::IValue& argument,
                              c10::function_ref<void(const at::Tensor&)> use);

/// The tensor in which the kernel computes instead, with the sizes, dtype and device of `output`.
at::Tensor output_apart(const at::Tensor& output);

/// Copies what was computed apart into the output of the call, which gets the sizes of the result.
/// Throws c10::Error if the output overlaps itself.
void copy_to_output(const at::Tensor& result, const at::Tensor& output);

}  // namespace openreg::ops
