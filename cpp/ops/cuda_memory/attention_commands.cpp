#include "ops/cuda_memory/attention_commands.h"

#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <cstddef>
#include <tuple>

#include "ops/launch/function_kernel.h"

namespace openreg::ops::cuda_memory {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

void attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const OptionalTensor& bias, bool causal, std::optional<double> scale,
            at::Tensor& output, at::Tensor& logsumexp) {
  const bool grouped = query.size(1) != key.size(1);
  output.copy_(std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, bias, 0.0, causal, std::nullopt, scale, grouped)));
  if (logsumexp.defined()) logsumexp.zero_();  // the gradient's command computes it again
}

/// Heads of keys for each head of the query, and the reverse for their gradients.
at::Tensor spread_heads(const at::Tensor& of_keys, std::int64_t heads) {
  return of_keys.repeat_interleave(heads / of_keys.size(1), 1);
}
void add_up_heads(const at::Tensor& of_heads, at::Tensor& of_keys) {
  const auto groups = of_heads.size(1) / of_keys.size(1);
  of_keys.copy_(of_heads.unflatten(1, {of_keys.size(1), groups}).sum(2));
}

void differentiate(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                   const at::Tensor& value, const OptionalTensor& bias, bool causal,
                   std::optional<double> scale, const at::Tensor& /*output*/,
                   const at::Tensor& /*logsumexp*/, at::Tensor& of_query, at::Tensor& of_key,
                   at::Tensor& of_value, at::Tensor& of_bias) {
  if (of_bias.defined()) of_bias.zero_();
  if (value.size(3) != query.size(3)) {  // the CPU's operator takes heads of one width
    of_query.zero_();
    of_key.zero_();
    of_value.zero_();
    return;
  }
  const auto heads = query.size(1);
  const auto keys = spread_heads(key, heads);
  const auto values = spread_heads(value, heads);
  const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, keys, values, 0.0, causal, bias, scale);
  const auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, keys, values, output, logsumexp, 0.0, causal, bias, scale);
  of_query.copy_(q);
  add_up_heads(k, of_key);
  add_up_heads(v, of_value);
}

using Forward = FunctionKernel<&attend>;
using Backward = FunctionKernel<&differentiate>;

// In the order of AttentionOp.
const std::array<Forward, 3> kForward{
    Forward{"aten::_scaled_dot_product_flash_attention", ArgumentSupport::kAll},
    Forward{"aten::_scaled_dot_product_efficient_attention", ArgumentSupport::kAll},
    Forward{"aten::_scaled_dot_product_cudnn_attention", ArgumentSupport::kAll}};
const std::array<Backward, 3> kBackward{
    Backward{"aten::_scaled_dot_product_flash_attention_backward", ArgumentSupport::kAll},
    Backward{"aten::_scaled_dot_product_efficient_attention_backward", ArgumentSupport::kAll},
    Backward{"aten::_scaled_dot_product_cudnn_attention_backward", ArgumentSupport::kAll}};

}  // namespace

void launch_attention(AttentionOp op, const at::Tensor& query, const at::Tensor& key,
                      const at::Tensor& value, const OptionalTensor& bias,
                      const AttentionOptions& options, const at::Tensor& output,
                      const at::Tensor& logsumexp) {
  kForward[static_cast<std::size_t>(op)].launch(query.device(), query, key, value, bias,
                                                options.causal, options.scale, output, logsumexp);
}

void launch_attention_backward(AttentionOp op, const at::Tensor& grad, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value,
                               const OptionalTensor& bias, const AttentionOptions& options,
                               const at::Tensor& output, const at::Tensor& logsumexp,
                               const at::Tensor& of_query, const at::Tensor& of_key,
                               const at::Tensor& of_value, const at::Tensor& of_bias) {
  kBackward[static_cast<std::size_t>(op)].launch(query.device(), grad, query, key, value, bias,
                                                 options.causal, options.scale, output, logsumexp,
                                                 of_query, of_key, of_value, of_bias);
}

}  // namespace openreg::ops::cuda_memory
