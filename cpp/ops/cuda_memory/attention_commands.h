#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace openreg::ops::cuda_memory {

/// Launches the command of an operator of attention.h, whose results it writes: if it computes,
/// without dropout. `op`: the operator, one of them.
enum class AttentionOp { kFlash, kEfficient, kCudnn };

struct AttentionOptions {
  bool causal = false;
  std::optional<double> scale{};
};

void launch_attention(AttentionOp op, const at::Tensor& query, const at::Tensor& key,
                      const at::Tensor& value, const std::optional<at::Tensor>& bias,
                      const AttentionOptions& options, const at::Tensor& output,
                      const at::Tensor& logsumexp);
/// `of_bias` may be undefined.
void launch_attention_backward(AttentionOp op, const at::Tensor& grad, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value,
                               const std::optional<at::Tensor>& bias,
                               const AttentionOptions& options, const at::Tensor& output,
                               const at::Tensor& logsumexp, const at::Tensor& of_query,
                               const at::Tensor& of_key, const at::Tensor& of_value,
                               const at::Tensor& of_bias);

}  // namespace openreg::ops::cuda_memory
