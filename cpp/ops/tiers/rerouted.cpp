// Operators that PyTorch routes to a backend's own kernel, or to a composite one, instead of the
// fallback. They run the CPU's operator of the same meaning (fallback.h).
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/relu_native.h>

#include "backend/library.h"
#include "ops/tiers/fallback.h"

namespace openreg::ops {

namespace {

void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto cpu_op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  run_cpu_kernel(op, cpu_op, stack);
}

/// convolution_backward also takes the sizes of the bias, after the third of its ten other
/// arguments.
void convolution_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto cpu_op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const auto channels = begin->toTensor().size(1);
  stack->insert(begin + 3, c10::IValue(std::vector<std::int64_t>{channels}));
  run_cpu_kernel(op, cpu_op, stack);
}

bool repeats_elements(const at::Tensor& tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) return true;
  }
  return false;
}

/// For kernels that take a stride of 0 for one of 1, and read past an expanded first argument. On
/// CUDA they copy it as well.
void on_distinct_elements(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& input = *(stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()));
  if (repeats_elements(input.toTensor())) input = input.toTensor().contiguous();
  fallback(op, stack);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());

  // Composite on other devices, with roundings, strides or checks that differ from the CPU's own
  // kernels, or with ATen kernels or host loops inside that do not work for other devices.
  for (const auto* name : {"native_group_norm",
                           "addr",
                           "addr.out",
                           "mish_backward",
                           "native_channel_shuffle",
                           "reflection_pad3d",
                           "reflection_pad3d_backward",
                           "replication_pad2d",
                           "replication_pad3d",
                           "pixel_shuffle",
                           "pixel_unshuffle",
                           "narrow_copy",
                           "narrow_copy.out",
                           "linalg__powsum",
                           "conj_physical_",
                           "_batch_norm_no_update",
                           "choose_qparams_optimized",
                           "isin.Scalar_Tensor",
                           "isin.Scalar_Tensor_out",
                           "_sobol_engine_draw",
                           "_sobol_engine_ff_",
                           "_sobol_engine_initialize_state_",
                           "_sobol_engine_scramble_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
  for (const auto* name : {"median.dim_values", "nanmedian.dim_values"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_distinct_elements>());
  // Composite, except on the devices that it names.
  m.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&fallback>());

  // Written by ATen in terms of other operators, for any device.
  m.impl("relu", TORCH_FN(at::native::relu));
  m.impl("relu_", TORCH_FN(at::native::relu_));
}

}  // namespace openreg::ops
