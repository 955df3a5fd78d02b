// Operators that PyTorch routes to a backend's own kernel, or to a composite one, instead of the
// fallback. They run the CPU's operator of the same meaning (dispatch.h).
#include <ATen/TracerMode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/relu_native.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "ops/cuda_memory/attention_choice.h"
#include "ops/cuda_memory/gpu.h"
#include "ops/tiers/composite.h"
#include "ops/tiers/dispatch.h"
#include "ops/tiers/quirks.h"
#include "ops/wire/ivalue_arguments.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto cpu_op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  dispatch_to_tier(op, cpu_op, stack);
}

/// convolution_backward also takes the sizes of the bias, after the third of its ten other
/// arguments.
void convolution_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto cpu_op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  const auto begin = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const auto channels = begin->toTensor().size(1);
  stack->insert(begin + 3, c10::IValue(std::vector<std::int64_t>{channels}));
  dispatch_to_tier(op, cpu_op, stack);
}

/// Whether elements may lie in the same memory: with the strides in order, a dimension reaches into
/// the next one.
bool may_overlap(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return false;
  c10::SmallVector<std::pair<std::int64_t, std::int64_t>, 5> dims;  // strides and sizes
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1) dims.emplace_back(tensor.stride(dim), tensor.size(dim));
  std::ranges::sort(dims);
  for (std::int64_t end = 1; const auto& [stride, size] : dims) {
    if (stride < end) return true;
    end = stride * size;
  }
  return false;
}

/// For kernels that are wrong if elements of the first argument lie in the same memory: median
/// takes a stride of 0 for one of 1, and reads past its input (CUDA copies it, too); attention
/// gives its output the strides of the query.
void on_distinct_elements(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& input = *(stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()));
  if (may_overlap(input.toTensor())) input = input.toTensor().contiguous();
  fallback(op, stack);
}

/// For kernels that read a tensor as if it were contiguous, or write an output in its order.
void on_contiguous_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = c10::toString(op.operator_name());
  const auto& arguments = op.schema().arguments();
  const auto begin = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = (*stack)[begin + i];
    if (!is_written(name.c_str(), arguments[i]) && argument.isTensor() &&
        argument.toTensor().defined())
      argument = argument.toTensor().contiguous();
  }
  fallback(op, stack);
}

/// For operators on lists, which are composite on every device: one command runs all of it, and not
/// one for each tensor. PyTorch allows the tensors of a list to be on several devices; tensors of
/// the CPU without dimensions that are only read are numbers. torch.jit.trace does not record
/// operators that return nothing, but their parts.
void on_lists(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<c10::Device> device;
  bool same = true;
  const auto see = [&](const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || (!written && tensor.is_cpu() && tensor.dim() == 0)) return;
    same &= !device || *device == tensor.device();
    device = tensor.device();
  };
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = torch::jit::peek(*stack, i, arguments.size());
    const bool written = is_written(arguments[i].alias_info());
    for_each_tensor(argument, [&](const at::Tensor& tensor) { see(tensor, written); });
  }
  const bool is_traced = at::tracer::impl::is_dispatch_enabled();
  if (same && device && backend::is_openreg(*device) && !is_traced) return fallback(op, stack);
  run_composite(op, stack);
}

/// linalg_eigvals: LAPACK crashes on elements that are not finite. linalg_eig refuses them.
void eigenvalues(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& input = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  TORCH_CHECK(at::isfinite(input).all().item<bool>(),
              "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
  fallback(op, stack);
}

/// The CPU's kernel reads the first row, even if there is none.
void pdist_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::size_t kArguments = 4;
  const at::Tensor input = torch::jit::peek(*stack, 1, kArguments).toTensor();
  if (input.numel() != 0) return fallback(op, stack);
  torch::jit::drop(*stack, kArguments);
  stack->emplace_back(at::empty_like(input, at::MemoryFormat::Contiguous));
}

/// The CPU's kernel for bfloat16 reads rows by whole vectors, beyond their ends too, and as if each
/// row began at a multiple of a vector. Zeros make the rows long enough and change no sum.
void weight_int8pack_mm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::int64_t kMultiple = 32;
  auto& input = torch::jit::peek(*stack, 0, 3);
  auto& weight = torch::jit::peek(*stack, 1, 3);
  const at::Tensor a = input.toTensor();
  const at::Tensor b = weight.toTensor();
  const auto is_matrix = [](const at::Tensor& x, at::ScalarType dtype) {
    return x.dim() == 2 && x.scalar_type() == dtype && x.is_contiguous();
  };
  // Otherwise the CPU's checks refuse the call.
  if (is_matrix(a, at::kBFloat16) && is_matrix(b, at::kChar) && a.size(1) == b.size(1)) {
    if (const auto beyond = a.size(1) % kMultiple; beyond != 0) {
      const std::array<std::int64_t, 2> padding{0, kMultiple - beyond};
      input = at::constant_pad_nd(a, padding);
      weight = at::constant_pad_nd(b, padding);
    }
  }
  fallback(op, stack);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  impl_boxed<&convolution>(m, "convolution_overrideable");
  impl_boxed<&convolution_backward>(m, "convolution_backward_overrideable");

  // Composite on other devices, with roundings, strides or checks that differ from the CPU's own
  // kernels, or with ATen kernels or host loops inside that do not work for other devices.
  impl_boxed<&fallback>(
      m,
      "native_group_norm addr addr.out mish_backward native_channel_shuffle reflection_pad3d "
      "reflection_pad3d_backward replication_pad2d replication_pad3d pixel_shuffle "
      "pixel_unshuffle narrow_copy narrow_copy.out linalg__powsum conj_physical_ "
      "_batch_norm_no_update choose_qparams_optimized isin.Scalar_Tensor "
      "isin.Scalar_Tensor_out _sobol_engine_draw _sobol_engine_ff_ "
      "_sobol_engine_initialize_state_ _sobol_engine_scramble_");
  impl_boxed<&on_distinct_elements>(
      m, "median.dim_values nanmedian.dim_values _scaled_dot_product_flash_attention_for_cpu");
  impl_boxed<&on_contiguous_tensors>(
      m,
      "native_batch_norm.out _native_batch_norm_legit.out "
      "_native_batch_norm_legit.no_stats_out _batch_norm_with_update.out "
      "fractional_max_pool3d_backward fractional_max_pool3d_backward.grad_input");
  // Those that write the tensors of a list, and take no list of numbers, which no command carries.
  impl_boxed<&on_lists>(
      m,
      "_foreach_abs_ _foreach_acos_ _foreach_add_.List _foreach_add_.Scalar "
      "_foreach_add_.Tensor _foreach_addcdiv_.Scalar _foreach_addcmul_.Scalar _foreach_asin_ "
      "_foreach_atan_ _foreach_ceil_ _foreach_clamp_max_.List _foreach_clamp_max_.Scalar "
      "_foreach_clamp_min_.List _foreach_clamp_min_.Scalar _foreach_cos_ _foreach_cosh_ "
      "_foreach_div_.List _foreach_div_.Scalar _foreach_div_.Tensor _foreach_erf_ "
      "_foreach_erfc_ _foreach_exp_ _foreach_expm1_ _foreach_floor_ _foreach_frac_ "
      "_foreach_lerp_.List _foreach_lerp_.Scalar _foreach_lgamma_ _foreach_log10_ "
      "_foreach_log1p_ _foreach_log2_ _foreach_log_ _foreach_maximum_.List "
      "_foreach_maximum_.Scalar _foreach_minimum_.List _foreach_minimum_.Scalar "
      "_foreach_mul_.List _foreach_mul_.Scalar _foreach_mul_.Tensor _foreach_neg_ "
      "_foreach_pow_.List _foreach_pow_.Scalar _foreach_reciprocal_ _foreach_round_ "
      "_foreach_rsqrt_ _foreach_sigmoid_ _foreach_sign_ _foreach_sin_ _foreach_sinh_ "
      "_foreach_sqrt_ _foreach_sub_.List _foreach_sub_.Scalar _foreach_tan_ _foreach_tanh_ "
      "_foreach_trunc_ _foreach_zero_");
  impl_boxed<&weight_int8pack_mm>(m, "_weight_int8pack_mm");
  impl_boxed<&pdist_backward>(m, "_pdist_backward");
  impl_boxed<&eigenvalues>(m, "_linalg_eigvals linalg_eigvals.out");
  // Composite, except on the devices that it names.
  impl_boxed<&fallback>(m, "mode.values");

  // Written by ATen in terms of other operators, for any device.
  m.impl("relu", TORCH_FN(at::native::relu));
  m.impl("relu_", TORCH_FN(at::native::relu_));
}

}  // namespace openreg::ops

namespace at::native {

// scaled_dot_product_attention lets the backend choose the implementation: the CPU's flash path,
// forward and backward, under the same conditions as on the CPU; without computing, as on CUDA.
std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double> scale,
                              bool grouped) {
  namespace cuda_memory = openreg::ops::cuda_memory;
  const auto choose = cuda_memory::is_reproduced() ? &cuda_memory::attention_backend_on_cuda
                                                   : &_fused_sdp_choice_cpp;
  return choose(query, key, value, mask, dropout, causal, scale, grouped);
}
OPENREG_REGISTER_DISPATCH(_fused_sdp_choice_stub, &choose_attention)

}  // namespace at::native
