#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <array>
#include <optional>
#include <tuple>

// CUDA's operators for the implementations of scaled_dot_product_attention, for use without
// computing: each has the results of CUDA's, of the same shapes, dtypes and strides, allocates and
// frees what CUDA's kernel does, and launches one command, which computes only if it is small.
// Facts of ATen's native/transformers/cuda, and of native/cudnn/MHA.cpp.
namespace openreg::ops::cuda_memory {

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                               c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;
using EfficientResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using EfficientGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// \param query [batch, heads, length, width]. \param key, value [batch, heads or a divisor of it,
/// length, width]. The operators' schemas describe the other parameters.
FlashResult flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            double dropout, bool causal, bool return_debug_mask,
                            std::optional<double> scale);
Gradients flash_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                   const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& output, const at::Tensor& logsumexp,
                                   double dropout, bool causal, std::optional<double> scale);

EfficientResult efficient_attention(const at::Tensor& query, const at::Tensor& key,
                                    const at::Tensor& value, const std::optional<at::Tensor>& bias,
                                    bool compute_logsumexp, double dropout, bool causal,
                                    std::optional<double> scale);
EfficientGradients efficient_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                                const at::Tensor& key, const at::Tensor& value,
                                                const at::Tensor& bias, const at::Tensor& output,
                                                const at::Tensor& logsumexp, double dropout,
                                                std::array<bool, 4> wanted, bool causal,
                                                std::optional<double> scale);

FlashResult cudnn_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& bias, bool compute_logsumexp,
                            double dropout, bool causal, bool return_debug_mask,
                            std::optional<double> scale);
Gradients cudnn_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                   const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& output, const at::Tensor& logsumexp,
                                   const at::Tensor& bias, double dropout, bool causal,
                                   std::optional<double> scale);

/// Registers these operators for the slot's device, if it does not have them in any case, so that
/// scaled_dot_product_attention calls them. The slot implements it.
void register_attention();

}  // namespace openreg::ops::cuda_memory
