#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <span>
#include <utility>

namespace openreg::ops {

// Note [Outputs of any strides]
//
// Many of the CPU's kernels write the output of an out form as if it were contiguous: into the gaps
// of a view, and beyond the end of one that overlaps itself. Some divide by the strides of
// dimensions of one element, some compute the losses of all elements in the memory of their mean,
// others give the output the strides that suit them. The device keeps and respects the strides of
// an output, as most of CUDA's kernels do: a kernel that might not do so computes into a
// *temporary* output, which is then copied. Kernels that iterate over elements write any strides,
// except for those with a quirk (quirks.h).

/// Whether the strides are those of a new tensor, also for dimensions of one element.
bool has_default_strides(const at::Tensor& tensor);
bool have_default_strides(std::span<const at::Tensor> tensors);

/// Calls `use` with each tensor of an argument that has the same storage as `output`.
void for_tensors_in_memory_of(const at::Tensor& output, const c10::IValue& argument,
                              c10::function_ref<void(const at::Tensor&)> use);

/// Makes a tensor for the kernel to compute into instead of `output`, with the same sizes, dtype
/// and device.
at::Tensor temporary_output(const at::Tensor& output);

/// Copies a temporary output into the output of the call, which gets the sizes of the result.
/// Throws c10::Error if the output overlaps itself.
void copy_to_output(const at::Tensor& result, const at::Tensor& output);

/// Replaces outputs of a call that its kernel may not be given: Note [Outputs of any strides]. The
/// kernel gets tensors of default strides in their place; an output that is an input, too, is
/// copied first, so the kernel still works in place, and refuses to change the sizes of its input.
class TemporaryOutputs {
 public:
  /// Replaces such outputs among the arguments on the stack.
  TemporaryOutputs(const c10::FunctionSchema& schema, torch::jit::Stack& stack);
  /// Puts the outputs back among the `last` values of the stack.
  void put_back(torch::jit::Stack& stack, std::size_t last) const;
  /// Like put_back(), after the kernel: also copies what it computed.
  void copy_back(torch::jit::Stack& stack, std::size_t results) const;

 private:
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 3> pairs_;  // a replacement and its output
};

}  // namespace openreg::ops
