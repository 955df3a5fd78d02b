// Flash attention, and cuDNN's: native/transformers/cuda/attention.cu, attention_backward.cu,
// flash_attn/flash_api.cpp, native/cudnn/MHA.cpp.
#include "ops/cuda_memory/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/stream.h"
#include "ops/cuda_memory/attention_commands.h"
#include "ops/cuda_memory/gpu.h"
#include "ops/cuda_memory/scratch.h"

namespace openreg::ops::cuda_memory {

namespace {

Scratch scratch_for(const at::Tensor& tensor) {
  return Scratch(backend::current_stream(tensor.device().index()));
}

std::int64_t up(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}
std::int64_t divided_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

std::int64_t rounded_width(std::int64_t width) { return up(width, width <= 128 ? 32 : 64); }

at::Tensor empty_floats(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

/// Into how many parts keys are split so that a short query uses the whole GPU.
std::int64_t splits_of_keys(std::int64_t blocks, std::int64_t width, std::int64_t keys) {
  constexpr std::int64_t kMost = 128;
  const std::int64_t block = width <= 64 ? 256 : width <= 128 ? 128 : 64;
  const auto key_blocks = divided_up(keys, block);
  const std::int64_t places = 2 * gpu().multiprocessors;
  if (static_cast<float>(blocks) >= 0.8F * static_cast<float>(places)) return 1;
  const auto most = std::min({kMost, places, key_blocks});
  const auto is_eligible = [&](std::int64_t splits) {
    return splits == 1 || divided_up(key_blocks, splits) != divided_up(key_blocks, splits - 1);
  };
  const auto efficiency = [&](std::int64_t splits) {
    const auto waves = static_cast<float>(blocks * splits) / static_cast<float>(places);
    return waves / std::ceil(waves);
  };
  float best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits)
    if (is_eligible(splits)) best = std::max(best, efficiency(splits));
  for (std::int64_t splits = 1; splits <= most; ++splits)
    if (is_eligible(splits) && efficiency(splits) >= 0.85 * best) return splits;
  return 1;
}

/// A copy if the tensor is not contiguous.
c10::DataPtr made_contiguous(const at::Tensor& tensor, Scratch& scratch) {
  return tensor.is_contiguous() ? c10::DataPtr() : scratch.copy_of(tensor);
}

/// [batch, heads, length, width] in the order of the query's strides.
at::Tensor empty_in_order_of(const at::Tensor& query, at::IntArrayRef sizes) {
  if (query.sizes() == sizes) return at::empty_like(query);
  std::vector<std::int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](auto a, auto b) { return query.stride(a) > query.stride(b); });
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[static_cast<std::size_t>(*dim)] = stride;
    stride *= sizes[static_cast<std::size_t>(*dim)];
  }
  return at::empty_strided(sizes, strides, query.options());
}

}  // namespace

FlashResult flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            double dropout, bool causal, bool return_debug_mask,
                            std::optional<double> scale) {
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto length = query.size(2);
  const auto width = query.size(3);
  const auto kv_heads = key.size(1);
  const auto keys = key.size(2);
  // One query for several heads of each key counts as several queries of fewer heads.
  const bool swapped = length == 1 && heads > kv_heads && dropout == 0;
  const auto rows = swapped ? heads / kv_heads : length;
  const auto columns = swapped ? kv_heads : heads;

  auto scratch = scratch_for(query);
  auto output = at::empty_like(query.transpose(1, 2)).transpose(1, 2);
  auto logsumexp = empty_floats(query, {batch, heads, length});
  at::Tensor mask = at::empty({0}, query.options());
  if (return_debug_mask && dropout > 0)
    mask = at::empty({batch, columns, up(rows, 128), up(keys, 128)}, query.options());
  c10::DataPtr sums, parts;
  if (dropout == 0) {
    const auto splits = splits_of_keys(batch * columns * divided_up(rows, 64), width, keys);
    if (splits > 1) {
      sums = scratch.elements(splits * batch * columns * rows, at::kFloat);
      parts = scratch.elements(splits * batch * columns * rows * rounded_width(width), at::kFloat);
    }
  }
  const auto numbers = query.options().dtype(at::kUInt64);
  auto state = at::empty({2}, numbers);
  auto unused = at::empty({}, numbers);
  if (dropout > 0) state = at::empty({2}, numbers);
  launch_attention(AttentionOp::kFlash, query, key, value, std::nullopt, {causal, scale}, output,
                   logsumexp);
  return {output, logsumexp, {}, {}, query.sym_size(2), key.sym_size(2), state, unused, mask};
}

Gradients flash_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                   const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& output, const at::Tensor& logsumexp,
                                   double /*dropout*/, bool causal, std::optional<double> scale) {
  if (!grad.defined()) return {};
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto rows = up(query.size(2), 128);
  const auto width = query.size(3);
  auto scratch = scratch_for(query);
  const auto contiguous_grad = made_contiguous(grad.transpose(1, 2), scratch);
  const auto contiguous_output = made_contiguous(output.transpose(1, 2), scratch);
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_like(tensor.transpose(1, 2)).transpose(1, 2);
  };
  const auto of_query = like(query);
  const auto of_key = like(key);
  const auto of_value = like(value);
  const auto delta = scratch.elements(batch * heads * rows, at::kFloat);
  const auto pairs = batch * heads;
  const auto splits =
      at::globalContext().deterministicAlgorithms() ? divided_up(gpu().multiprocessors, pairs) : 1;
  const auto accumulated =
      scratch.elements(splits * batch * rows * heads * rounded_width(width), at::kFloat);
  c10::DataPtr expanded_key, expanded_value;
  if (key.size(1) != heads) {  // one gradient for each head of the query, added up afterwards
    const auto elements = batch * key.size(2) * heads * width;
    expanded_key = scratch.elements(elements, query.scalar_type());
    expanded_value = scratch.elements(elements, query.scalar_type());
  }
  launch_attention_backward(AttentionOp::kFlash, grad, query, key, value, std::nullopt,
                            {causal, scale}, output, logsumexp, of_query, of_key, of_value, {});
  return {of_query, of_key, of_value};
}

FlashResult cudnn_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& bias, bool compute_logsumexp,
                            double /*dropout*/, bool causal, bool /*return_debug_mask*/,
                            std::optional<double> scale) {
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto length = query.size(2);
  const auto numbers = query.options().dtype(at::kLong);
  const auto seed = at::empty({}, numbers);
  const auto offset = at::empty({}, numbers);
  const auto output = empty_in_order_of(query, {batch, heads, length, value.size(3)});
  at::Tensor logsumexp;
  if (compute_logsumexp) logsumexp = empty_floats(query, {batch, heads, length, 1});
  launch_attention(AttentionOp::kCudnn, query, key, value, bias, {causal, scale}, output,
                   logsumexp);
  return {output, logsumexp, {}, {}, query.sym_size(2), key.sym_size(2), seed, offset, {}};
}

Gradients cudnn_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                   const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& output, const at::Tensor& logsumexp,
                                   const at::Tensor& bias, double /*dropout*/, bool causal,
                                   std::optional<double> scale) {
  if (!grad.defined()) return {};
  const auto batch = query.size(0);
  const auto heads = query.size(1);
  const auto length = query.size(2);
  auto scratch = scratch_for(query);
  const auto of_query = at::empty_like(query);
  const auto of_key = at::empty_like(key);
  const auto of_value = at::empty_like(value);
  // The workspace is cuDNN's choice. It holds at least these.
  const auto rows = batch * heads * length;
  auto bytes = 4 * rows * (query.size(3) + 1);
  if (key.size(1) != heads) {
    const auto widths = key.size(3) + value.size(3);
    bytes += batch * heads * key.size(2) * widths * static_cast<std::int64_t>(query.itemsize());
  }
  const auto workspace = scratch.bytes(bytes);
  launch_attention_backward(AttentionOp::kCudnn, grad, query, key, value,
                            bias.defined() ? std::optional(bias) : std::nullopt, {causal, scale},
                            output, logsumexp, of_query, of_key, of_value, {});
  return {of_query, of_key, of_value};
}

}  // namespace openreg::ops::cuda_memory
