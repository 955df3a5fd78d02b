// CUDA's operators of attention, for a device that does not compute. One that computes has the
// CPU's, and none of these.
#include "ops/cuda_memory/attention.h"

#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>

#include "base/once.h"
#include "ops/cuda_memory/attention_choice.h"
#include "ops/cuda_memory/gpu.h"
#include "slot.h"

namespace openreg::ops::cuda_memory {

namespace {

using Optional = std::optional<at::Tensor>;

std::int64_t width_of(const at::Tensor& tensor) {
  return tensor.sym_size(-1).guard_int(__FILE__, __LINE__);
}

/// Heads whose width is a multiple of 8.
at::Tensor padded_heads(const at::Tensor& tensor) {
  constexpr std::int64_t kMultiple = 8;
  const auto beyond = width_of(tensor) % kMultiple;
  return beyond == 0 ? tensor : at::constant_pad_nd(tensor, {0, kMultiple - beyond});
}

/// ATen's own takes the CPU's operator for flash attention, and calls CUDA's others.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const Optional& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  const auto is_flash = [&] {
    return attention_backend_on_cuda(query, key, value, mask, dropout, causal, scale, grouped) ==
           static_cast<std::int64_t>(sdp::SDPBackend::flash_attention);
  };
  if (!is_reproduced() || !is_flash())
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale,
                                                    grouped);
  const auto width = width_of(query);
  const auto by_width = sdp::calculate_scale(query, scale).guard_float(__FILE__, __LINE__);
  const auto output = std::get<0>(at::_scaled_dot_product_flash_attention(
      padded_heads(query), padded_heads(key), padded_heads(value), dropout, causal,
      /*return_debug_mask=*/false, by_width));
  return width_of(output) == width ? output : output.slice(-1, 0, width);
}

Gradients flash_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& output,
                         const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
                         c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&,
                         const at::Tensor&, std::optional<double> scale) {
  return flash_attention_backward(grad, query, key, value, output, logsumexp, dropout, causal,
                                  scale);
}

EfficientGradients efficient_backward(const at::Tensor& grad, const at::Tensor& query,
                                      const at::Tensor& key, const at::Tensor& value,
                                      const at::Tensor& bias, const at::Tensor& output,
                                      const at::Tensor& logsumexp, const at::Tensor&,
                                      const at::Tensor&, double dropout, std::array<bool, 4> wanted,
                                      bool causal, std::optional<double> scale) {
  return efficient_attention_backward(grad, query, key, value, bias, output, logsumexp, dropout,
                                      wanted, causal, scale);
}

Gradients cudnn_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& output,
                         const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
                         const at::Tensor& bias, const at::Tensor&, const at::Tensor&, c10::SymInt,
                         c10::SymInt, double dropout, bool causal, std::optional<double> scale) {
  return cudnn_attention_backward(grad, query, key, value, output, logsumexp, bias, dropout, causal,
                                  scale);
}

}  // namespace

void register_attention() {
  static const Once once([] {
    using torch::Library;
    static Library device(Library::IMPL, "aten", backend::kDispatchKey, __FILE__, __LINE__);
    device.impl("scaled_dot_product_attention", TORCH_FN(attention));
    device.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash_attention));
    device.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward));
    device.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient_attention));
    device.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward));
    device.impl("_scaled_dot_product_cudnn_attention", TORCH_FN(cudnn_attention));
    device.impl("_scaled_dot_product_cudnn_attention_backward", TORCH_FN(cudnn_backward));
    // Above the operators' derivatives.
    static Library autograd(Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__,
                            __LINE__);
    autograd.impl("scaled_dot_product_attention", TORCH_FN(attention));
  });
}

}  // namespace openreg::ops::cuda_memory
