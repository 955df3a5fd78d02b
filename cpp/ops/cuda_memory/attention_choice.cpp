// Facts of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. What it shares with the CPU's
// choice is in the header sdp_utils_cpp.h.
#include "ops/cuda_memory/attention_choice.h"

#include <ATen/Context.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/settings.h"
#include "ops/cuda_memory/gpu.h"
#include "slot.h"

namespace openreg::ops::cuda_memory {

namespace {

using sdp::sdp_params;
using sdp::SDPBackend;

constexpr bool kDebug = false;
constexpr int kAmpere = 80;
constexpr int kNewest = 121;  // that the fused kernels are built for

/// Also of a tensor that is traced with symbolic sizes.
std::int64_t size(const at::Tensor& tensor, std::int64_t dim) {
  return tensor.sym_size(dim).guard_int(__FILE__, __LINE__);
}

bool is_half(const sdp_params& call) {
  const auto dtype = call.query.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

bool has_dtype(const sdp_params& call, std::initializer_list<at::ScalarType> dtypes) {
  const auto dtype = call.query.scalar_type();
  return call.key.scalar_type() == dtype && call.value.scalar_type() == dtype &&
         std::ranges::find(dtypes, dtype) != dtypes.end();
}

bool is_dense(const sdp_params& call) { return sdp::has_only_dense_inputs(call); }

bool is_flash_possible(const sdp_params& call) {
  constexpr std::int64_t kWidest = 256;
  const auto capability = gpu().capability();
  if (!sdp::check_runtime_disabled_flash(call, kDebug) || !is_dense(call) ||
      !sdp::check_tensor_shapes(call, kDebug) || !sdp::check_for_attn_mask(call, kDebug) ||
      capability < kAmpere || capability > kNewest || !has_dtype(call, {at::kHalf, at::kBFloat16}))
    return false;
  const auto width = size(call.query, 3);
  if (size(call.key, 3) != width || size(call.value, 3) != width || width > kWidest) return false;
  if (call.is_causal && size(call.query, 2) != size(call.key, 2)) return false;
  // GPUs with less shared memory have no gradient for wide heads.
  const bool is_small =
      capability == 86 || capability == 89 || capability == 120 || capability == 121;
  const bool is_wide = (width > 192 && width <= 224) || (width > 224 && call.dropout > 0);
  if (is_small && is_wide && sdp::input_requires_grad(call)) return false;
  return sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(call, kDebug) &&
         sdp::check_nonzero_sequence_lengths_dense(call, kDebug) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/true>(call, kDebug);
}

/// What widths of heads must be multiples of.
std::int64_t efficient_alignment(const sdp_params& call) {
  const auto major = gpu().major;
  const bool tensor_cores = major >= 8 || (major >= 7 && is_half(call));
  const std::int64_t least = major >= 8 ? 4 : 1;
  return tensor_cores ? std::max<std::int64_t>(least, is_half(call) ? 8 : 4) : least;
}

bool is_efficient_possible(const sdp_params& call) {
  const auto capability = gpu().capability();
  if (!sdp::check_runtime_disabled_mem_efficient(call, kDebug) || !is_dense(call) ||
      !sdp::check_tensor_shapes(call, kDebug) || capability < 50 || capability > kNewest)
    return false;
  const auto alignment = efficient_alignment(call);
  const auto width = size(call.query, 3);
  const auto value_width = size(call.value, 3);
  if (size(call.key, 3) != width || width == 0 || value_width == 0 || width % alignment != 0 ||
      value_width % alignment != 0)
    return false;
  const bool bfloat = capability >= kAmpere;
  if (!has_dtype(call, {at::kHalf, at::kFloat}) && !(bfloat && has_dtype(call, {at::kBFloat16})))
    return false;
  constexpr bool kGrouped = OPENREG_TORCH_AT_LEAST(2, 14);
  return sdp::check_nonzero_sequence_lengths_dense(call, kDebug) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>(call, kDebug) &&
         sdp::check_batch_size_and_num_heads_dense<kGrouped>(call, kDebug);
}

bool is_cudnn_possible(const sdp_params& call) {
  const auto capability = gpu().capability();
  const auto& context = at::globalContext();
  if (!context.userEnabledCuDNNSDP() || !is_dense(call) ||
      !sdp::check_tensor_shapes(call, kDebug) ||
      (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) ||
      capability < kAmpere || capability > kNewest ||
      !has_dtype(call, {at::kHalf, at::kBFloat16}) || !sdp::check_attn_mask_shape(call, kDebug))
    return false;
  if (!sdp::check_nonzero_sequence_lengths_dense(call, kDebug) ||
      !sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/true>(call, kDebug) ||
      !sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true,
                                                 /*requires_same_num_heads=*/false>(call, kDebug))
    return false;
  const std::int64_t widest = capability == 90 ? 256 : 128;
  const auto width = size(call.query, 3);
  const auto value_width = size(call.value, 3);
  return width <= widest && value_width <= widest && width % 8 == 0 && value_width % 8 == 0 &&
         size(call.key, 2) != 1 && !(size(call.query, 2) == 1 && call.dropout != 0);
}

/// Of the program, or PyTorch's. On GPUs where cuDNN's is faster, CUDA's code puts it first in the
/// default.
std::vector<SDPBackend> priorities() {
  using enum SDPBackend;
  constexpr auto kDefault = std::to_array({flash_attention, efficient_attention, math});
  const auto chosen = at::globalContext().sDPPriorityOrder();
  std::vector<SDPBackend> order(chosen.begin(), chosen.end());
  const auto capability = gpu().capability();
  const bool prefers_cudnn =
      (capability == 90 || capability == 100) && !cuda_library_settings().cudnn_attention_last;
  if (prefers_cudnn && std::equal(kDefault.begin(), kDefault.end(), order.begin())) {
    std::erase(order, cudnn_attention);
    order.insert(order.begin(), cudnn_attention);
  }
  return order;
}

bool is_possible(SDPBackend backend, const sdp_params& call) {
  switch (backend) {
    case SDPBackend::flash_attention:
      return is_flash_possible(call);
    case SDPBackend::efficient_attention:
      return is_efficient_possible(call);
    case SDPBackend::cudnn_attention:
      return is_cudnn_possible(call);
    case SDPBackend::math:
      return at::globalContext().userEnabledMathSDP();
    default:
      return false;
  }
}

}  // namespace

std::int64_t attention_backend_on_cuda(const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value,
                                       const std::optional<at::Tensor>& mask, double dropout,
                                       bool causal, std::optional<double> /*scale*/, bool grouped) {
  const sdp_params call{query, key, value, mask, dropout, causal, grouped};
  for (const auto backend : priorities()) {
    if (is_possible(backend, call)) return static_cast<std::int64_t>(backend);
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

}  // namespace openreg::ops::cuda_memory
