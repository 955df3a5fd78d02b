// Operators in which ATen asks for CUDA (Tensor::is_cuda), and takes a branch that a build without
// CUDA does not have, or that asks for kernels which only CUDA has. They get the CPU's kernels.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/nested/NestedTensorBinaryOps.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>

#include <optional>

#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// at::native::copy_ has a stub for CUDA, and calls _copy_from for all other devices.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("aten::_copy_from", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, bool)>();
  op.call(source, self, non_blocking);
  return self;
}

/// ATen's calls at::native::copy_, not the operator.
at::Tensor clone_quantized(const at::Tensor& self, std::optional<at::MemoryFormat> format) {
  return at::empty_like(self, {}, format.value_or(at::MemoryFormat::Contiguous)).copy_(self);
}

/// _convolution is convolution with four more arguments, which are about cuDNN.
void convolution_of_any_library(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto convolution =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::drop(*stack, 4);
  dispatch_to_tier(convolution, convolution, stack);
}

/// _softmax(self, dim, half_to_float). Autocast has CUDA read half precision and write float32 in
/// one step, which the CPU's kernel refuses.
void softmax(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& half_to_float = torch::jit::peek(*stack, 2, 3);
  if (half_to_float.toBool()) {
    half_to_float = false;
    auto& self = torch::jit::peek(*stack, 0, 3);
    self = self.toTensor().to(at::kFloat);
  }
  fallback(op, stack);
}

/// _softmax_backward_data(grad_output, output, dim, input_dtype): the same in the other direction.
void softmax_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& input_dtype = torch::jit::peek(*stack, 3, 4);
  const auto dtype = input_dtype.toScalarType();
  const auto computed = torch::jit::peek(*stack, 0, 4).toTensor().scalar_type();
  input_dtype = static_cast<std::int64_t>(computed);
  fallback(op, stack);
  if (computed != dtype) stack->back() = stack->back().toTensor().to(dtype);
}

/// Sum or product of a nested tensor, whose parts have sizes [n, columns] or [n], and a row of
/// `rows` for each part.
void combine_parts_with_rows(at::Tensor& result, const at::Tensor& self, const at::Tensor& rows,
                             const at::native::NESTED_DENSE_OP& op) {
  const auto contiguous = self.contiguous();
  const auto& nested = *at::native::get_nested_tensor_impl(contiguous);
  const auto columns = rows.size(-1);
  const auto values = nested.get_buffer().view({-1, columns});
  const auto lengths = nested.get_nested_sizes().select(1, 0).contiguous();  // on the CPU
  const auto part_of_row =
      at::repeat_interleave(lengths, std::optional(values.size(0))).to(self.device());
  const auto others = rows.view({-1, columns}).index_select(0, part_of_row);
  auto out = at::native::get_nested_tensor_impl(result)->get_buffer().view({-1, columns});
  if (op == at::native::NESTED_DENSE_OP::ADD) {
    at::add_out(out, values, others);
  } else {
    at::mul_out(out, values, others);
  }
}

template <class Lengths>
bool use_no_library(const at::Tensor&, const at::Tensor&, Lengths, Lengths, std::int64_t) {
  return false;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("copy_", TORCH_FN(copy_));
  // Depthwise kernels, and those of cuDNN. Not instead of "convolution", which torch.jit.trace does
  // not record: it records the call of this one.
  impl_boxed<&convolution_of_any_library>(m, "_convolution");
  impl_boxed<&fallback>(m, "convolution_backward");
  impl_boxed<&softmax>(m, "_softmax _log_softmax");
  impl_boxed<&softmax_backward>(m, "_softmax_backward_data _log_softmax_backward_data");
  m.impl("_use_cudnn_ctc_loss", TORCH_FN(use_no_library<at::IntArrayRef>));
  m.impl("_use_cudnn_ctc_loss.Tensor", TORCH_FN(use_no_library<const at::Tensor&>));
  m.impl("_use_miopen_ctc_loss", TORCH_FN(use_no_library<at::IntArrayRef>));
  m.impl("_use_miopen_ctc_loss.Tensor", TORCH_FN(use_no_library<const at::Tensor&>));
}

OPENREG_LIBRARY_IMPL_FOR(Quantized, aten, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("clone", TORCH_FN(clone_quantized));
}

}  // namespace openreg::ops

namespace at::native {
OPENREG_REGISTER_DISPATCH(nested_dense_elementwise_stub, &openreg::ops::combine_parts_with_rows)
}
