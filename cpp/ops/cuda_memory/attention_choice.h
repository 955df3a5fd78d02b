#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace openreg::ops::cuda_memory {

/// The implementation that CUDA chooses for scaled_dot_product_attention on the GPU of gpu(), as a
/// number of sdp::SDPBackend: the first of PyTorch's order of priority whose conditions hold. The
/// program's settings (torch.nn.attention.sdpa_kernel) count as on CUDA. Throws c10::Error if none
/// may be used.
std::int64_t attention_backend_on_cuda(const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value,
                                       const std::optional<at::Tensor>& mask, double dropout,
                                       bool causal, std::optional<double> scale, bool grouped);

}  // namespace openreg::ops::cuda_memory
