// scaled_dot_product_attention. CUDA has operators for each of its implementations; those that are
// fused get the CPU's flash attention.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <limits>
#include <tuple>

#include "ops/cuda_memory/attention.h"
#include "ops/cuda_memory/gpu.h"
#include "slot.h"

namespace openreg::ops {

namespace {

using Optional = std::optional<at::Tensor>;

/// Whether the CPU's conditions for flash attention hold. A program may allow only the efficient
/// implementation, or cuDNN's; then flash attention is allowed, which stands for them, where it
/// can.
bool is_fused(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
              const Optional& mask, double dropout, bool causal, std::optional<double> scale,
              bool grouped) {
  if (query.scalar_type() == at::kDouble || grouped) return false;
  auto& context = at::globalContext();
  if (context.userEnabledMemEfficientSDP() || context.userEnabledCuDNNSDP()) {
    if (!context.userEnabledFlashSDP() && !context.userEnabledMathSDP())
      return dropout == 0 && !(mask && mask->requires_grad());
  }
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale,
                                           grouped) ==
         static_cast<std::int64_t>(sdp::SDPBackend::flash_attention);
}

/// A mask as numbers that are added: no operator below takes one of bools.
Optional added_mask(const Optional& mask, const at::Tensor& query) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  return at::zeros_like(*mask, query.options())
      .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const Optional& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  if (cuda_memory::is_reproduced())
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale,
                                                    grouped);
  const auto added = added_mask(mask, query);
  if (!is_fused(query, key, value, mask, dropout, causal, scale, grouped))
    return std::get<0>(at::_scaled_dot_product_attention_math(
        query, key, value, added, dropout, causal, std::nullopt, scale, grouped));
  // Since torch 2.15 the conditions may hold for three dimensions; the operator has four.
  if (query.dim() == 3 && key.dim() == 3 && value.dim() == 3)
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
                           query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), dropout,
                           causal, added, scale))
        .squeeze(0);
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout,
                                                                     causal, added, scale));
}

at::Tensor no_random_state(const at::Tensor& query) {
  return at::empty({0}, query.options().dtype(at::kLong));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
           at::Tensor, at::Tensor>
flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
      bool causal, bool return_debug_mask, std::optional<double> scale) {
  if (cuda_memory::is_reproduced())
    return cuda_memory::flash_attention(query, key, value, dropout, causal, return_debug_mask,
                                        scale);
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, causal, std::nullopt, scale);
  const auto none = no_random_state(query);
  return {output,
          logsumexp,
          {},
          {},
          query.sym_size(2),
          key.sym_size(2),
          none,
          none,
          at::empty({0}, query.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  if (cuda_memory::is_reproduced())
    return cuda_memory::flash_attention_backward(grad, query, key, value, output, logsumexp,
                                                 dropout, causal, scale);
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, output, logsumexp, dropout, causal, std::nullopt, scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Optional& bias,
    bool compute_log_sumexp, double dropout, bool causal, std::optional<double> scale) {
  if (cuda_memory::is_reproduced())
    return cuda_memory::efficient_attention(query, key, value, bias, compute_log_sumexp, dropout,
                                            causal, scale);
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, causal, bias, scale);
  const auto none = no_random_state(query);
  return {output, logsumexp, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, const at::Tensor& output, const at::Tensor& logsumexp,
    const at::Tensor&, const at::Tensor&, double dropout, std::array<bool, 4> wanted, bool causal,
    std::optional<double> scale) {
  if (cuda_memory::is_reproduced())
    return cuda_memory::efficient_attention_backward(grad, query, key, value, bias, output,
                                                     logsumexp, dropout, wanted, causal, scale);
  TORCH_CHECK(!wanted[3], "openreg: the efficient attention has no gradient of attn_bias");
  auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, output, logsumexp, dropout, causal,
      bias.defined() ? Optional(bias) : std::nullopt, scale);
  return {of_query, of_key, of_value, {}};
}

cuda_memory::FlashResult cudnn(const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const Optional& bias,
                               bool compute_log_sumexp, double dropout, bool causal,
                               bool return_debug_mask, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(cuda_memory::is_reproduced(),
                              "openreg: cuDNN's attention does not compute; use ",
                              "torch.nn.functional.scaled_dot_product_attention");
  return cuda_memory::cudnn_attention(query, key, value, bias, compute_log_sumexp, dropout, causal,
                                      return_debug_mask, scale);
}

cuda_memory::Gradients cudnn_backward(const at::Tensor& grad, const at::Tensor& query,
                                      const at::Tensor& key, const at::Tensor& value,
                                      const at::Tensor& output, const at::Tensor& logsumexp,
                                      const at::Tensor&, const at::Tensor&, const at::Tensor& bias,
                                      const at::Tensor&, const at::Tensor&, c10::SymInt,
                                      c10::SymInt, double dropout, bool causal,
                                      std::optional<double> scale) {
  return cuda_memory::cudnn_attention_backward(grad, query, key, value, output, logsumexp, bias,
                                               dropout, causal, scale);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(attention));
  m.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash));
  m.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward));
  m.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient));
  m.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward));
  m.impl("_scaled_dot_product_cudnn_attention", TORCH_FN(cudnn));
  m.impl("_scaled_dot_product_cudnn_attention_backward", TORCH_FN(cudnn_backward));
}

void cuda_memory::register_attention() {}  // it is, below and above

// ATen's own chooses by is_cuda() between operators that only a build with CUDA has.
OPENREG_LIBRARY_IMPL_FOR(Autograd, aten, m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(attention));
}

}  // namespace openreg::ops
