// Memory-efficient attention: native/transformers/cuda/attention.cu, attention_backward.cu, and
// mem_eff_attention/kernel_{forward,backward}.h with the kernels of cutlassF.h and cutlassB.h.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "backend/stream.h"
#include "ops/cuda_memory/attention.h"
#include "ops/cuda_memory/attention_commands.h"
#include "ops/cuda_memory/gpu.h"
#include "ops/cuda_memory/scratch.h"
#include "runtime/capture.h"

namespace openreg::ops::cuda_memory {

namespace {

std::int64_t rounded(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}
std::int64_t parts(std::int64_t number, std::int64_t of) { return (number + of - 1) / of; }

bool is_half(const at::Tensor& tensor) { return tensor.itemsize() == 2; }

/// A kernel for gradients: blocks of queries and keys, and whether it keeps the gradients of a
/// block of keys in registers.
struct BackwardKernel {
  std::int64_t queries;
  std::int64_t keys;
  bool in_registers;
  bool computes_delta;
};

BackwardKernel backward_kernel(const at::Tensor& query, std::int64_t width) {
  const auto capability = gpu().capability();
  const bool half = is_half(query);
  // With little shared memory the largest blocks do not fit.
  const bool small = capability == 86 || capability == 89 || capability >= 120;
  const auto made = [&](std::int64_t queries, std::int64_t keys, std::int64_t widest) {
    const bool in_registers = half && widest <= queries;
    return BackwardKernel{queries, keys, in_registers,
                          half && (in_registers || capability < 70 || capability >= 75)};
  };
  constexpr std::int64_t kAnyWidth = 65536;
  if (width <= 32) return made(64, 64, 32);
  if (width <= 64) return made(64, 64, 64);
  if (half && capability >= 80) {
    if ((capability == 86 || capability == 89) && width <= 96) return made(128, 64, 96);
    if (width <= 128) return small ? made(64, 64, 128) : made(128, 128, 128);
    return small ? made(64, 64, kAnyWidth) : made(128, 64, kAnyWidth);
  }
  const bool large = capability >= 70 && !small;
  const auto widest = width <= 128 ? 128 : kAnyWidth;
  return large ? made(128, 64, widest) : made(64, 64, widest);
}

std::int64_t splits_of(const BackwardKernel& kernel, std::int64_t batch, std::int64_t heads,
                       std::int64_t keys, bool half) {
  if (gpu().capability() < 70) return 1;
  auto splits = parts(keys, kernel.keys);
  if (splits * heads * batch >= 256 && keys <= 2 * kernel.keys) splits = 1;
  if (half && !kernel.in_registers) splits = std::min(splits, 200 / (batch * heads));
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly()) splits = 1;
  return std::max<std::int64_t>(splits, 1);
}

std::int64_t workspace_bytes(const BackwardKernel& kernel, const at::Tensor& query,
                             const at::Tensor& key, const at::Tensor& value) {
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto width = query.size(3);
  const bool half = is_half(query);
  const auto splits = splits_of(kernel, batch, heads, key.size(2), half);
  std::int64_t numbers = 0;  // of float32, for each head
  if (half && !kernel.in_registers) {
    numbers += splits * kernel.keys * rounded(width, kernel.queries);
    numbers += splits * kernel.keys * rounded(value.size(3), kernel.queries);
  }
  if (gpu().capability() >= 70 || half) {
    constexpr std::int64_t kLock = 4;  // beside each block
    numbers += parts(query.size(2), kernel.queries) * parts(width, kernel.keys) *
               (kernel.queries * kernel.keys + kLock);
  }
  return batch * heads * rounded(numbers, 4) * 4;
}

/// As in CUDA they are on the CPU, except in a capture.
std::pair<at::Tensor, at::Tensor> random_state(const at::Tensor& query, const Stream& stream) {
  const auto device = capture_of(stream) != 0 ? query.device() : c10::Device(c10::kCPU);
  const auto options = query.options().dtype(at::kLong).device(device);
  return {at::empty({}, options), at::empty({}, options)};
}

}  // namespace

EfficientResult efficient_attention(const at::Tensor& query, const at::Tensor& key,
                                    const at::Tensor& value, const std::optional<at::Tensor>& bias,
                                    bool compute_logsumexp, double /*dropout*/, bool causal,
                                    std::optional<double> scale) {
  constexpr std::int64_t kAlignment = 32;  // of the sums
  constexpr std::int64_t kWidest = 128;    // that stays in registers
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto length = query.size(2);
  const auto width = value.size(3);
  auto& stream = backend::current_stream(query.device().index());
  Scratch scratch(stream);
  auto [seed, offset] = random_state(query, stream);
  auto output = at::empty({batch, length, heads, width}, query.options()).transpose(1, 2);
  auto logsumexp = at::empty({batch, heads, compute_logsumexp ? rounded(length, kAlignment) : 0},
                             query.options().dtype(at::kFloat));
  c10::DataPtr accumulated;
  if (is_half(query) && width > kWidest)
    accumulated = scratch.elements(batch * length * heads * width, at::kFloat);
  launch_attention(AttentionOp::kEfficient, query, key, value, bias, {causal, scale}, output,
                   logsumexp);
  return {output, logsumexp, seed, offset};
}

EfficientGradients efficient_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                                const at::Tensor& key, const at::Tensor& value,
                                                const at::Tensor& bias, const at::Tensor& output,
                                                const at::Tensor& logsumexp, double /*dropout*/,
                                                std::array<bool, 4> wanted, bool causal,
                                                std::optional<double> scale) {
  if (!grad.defined()) return {};
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto length = query.size(2);
  auto scratch = Scratch(backend::current_stream(query.device().index()));
  c10::DataPtr contiguous_grad;
  if (!grad.transpose(1, 2).is_contiguous()) contiguous_grad = scratch.copy_of(grad);
  const auto made = [](const at::Tensor& like) {
    return at::empty(like.transpose(1, 2).sizes(), like.options()).transpose(1, 2);
  };
  const auto of_query = made(query);
  const auto of_key = made(key);
  const auto of_value = made(value);
  at::Tensor of_bias;
  if (wanted[3] && bias.defined()) {
    auto sizes = bias.sizes().vec();
    sizes.back() = rounded(sizes.back(), 16);
    of_bias = at::empty(sizes, bias.options()).slice(-1, 0, bias.size(-1));
  }
  const auto kernel = backward_kernel(query, std::max(query.size(3), value.size(3)));
  const auto rows = batch * heads * length;
  c10::DataPtr delta;
  if (kernel.computes_delta) {
    delta = scratch.elements(rows, at::kFloat);
  } else {
    const auto floats = [&](const at::Tensor& tensor) {
      return is_half(tensor) ? scratch.elements(tensor.numel(), at::kFloat) : c10::DataPtr();
    };
    const auto of_grad = floats(grad);
    const auto of_output = floats(output);
    const auto products = scratch.elements(output.numel(), at::kFloat);
    const auto sums = scratch.elements(rows, at::kFloat);
    delta = scratch.elements(rows, at::kFloat);
  }
  const auto workspace = scratch.bytes(workspace_bytes(kernel, query, key, value));
  launch_attention_backward(AttentionOp::kEfficient, grad, query, key, value,
                            bias.defined() ? std::optional(bias) : std::nullopt, {causal, scale},
                            output, logsumexp, of_query, of_key, of_value, of_bias);
  return {of_query, of_key, of_value, of_bias};
}

}  // namespace openreg::ops::cuda_memory
