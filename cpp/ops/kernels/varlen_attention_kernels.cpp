#include "ops/kernels/varlen_attention_kernels.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ops/tensors/checks.h"

namespace openreg::ops {

namespace {

constexpr auto kInfinity = std::numeric_limits<double>::infinity();

/// Query i sees the keys from i - left to i + right, counted so that the last query is aligned with
/// the last key; -1: all keys on that side.
struct Window {
  std::int64_t left;
  std::int64_t right;
};

/// One of the sequences, with tensors [tokens, heads, size]; keys may have fewer heads.
struct Sequence {
  std::int64_t query_begin;
  std::int64_t queries;
  at::Tensor key;
  at::Tensor value;

  bool empty() const { return queries == 0 || key.size(0) == 0; }
  at::Tensor of_queries(const at::Tensor& tensor) const {
    return tensor.narrow(0, query_begin, queries);
  }
};

/// The layout of the CPU's operator: [1, heads, tokens, size].
at::Tensor heads_first(const at::Tensor& sequence) { return sequence.transpose(0, 1).unsqueeze(0); }

/// Repeats each head for all query heads that use it.
at::Tensor repeat_heads(const at::Tensor& sequence, std::int64_t heads) {
  return sequence.repeat_interleave(heads / sequence.size(1), 1);
}

/// Which keys a query sees, [queries, keys]; undefined if all.
at::Tensor visible(const Sequence& sequence, Window window) {
  if (window.left < 0 && window.right < 0) return {};
  const auto keys = sequence.key.size(0);
  const auto key = at::arange(keys);
  const auto query = at::arange(sequence.queries).unsqueeze(1) + (keys - sequence.queries);
  auto mask = at::ones({sequence.queries, keys}, at::kBool);
  if (window.left >= 0) mask.logical_and_(key >= query - window.left);
  if (window.right >= 0) mask.logical_and_(key <= query + window.right);
  return mask;
}

OptionalTensor as_bias(const at::Tensor& mask, at::ScalarType dtype) {
  if (!mask.defined()) return std::nullopt;
  return at::zeros(mask.sizes(), dtype).masked_fill_(mask.logical_not(), -kInfinity);
}

void attend(const at::Tensor& query, const Sequence& sequence, double scale, Window window,
            at::Tensor& out, at::Tensor& logsumexp) {
  if (sequence.empty()) {
    out.zero_();
    logsumexp.fill_(kInfinity);
    return;
  }
  const auto heads = query.size(1);
  const auto mask = visible(sequence, window);
  const auto [result, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_first(query), heads_first(repeat_heads(sequence.key, heads)),
      heads_first(repeat_heads(sequence.value, heads)), /*dropout_p=*/0.0, /*is_causal=*/false,
      as_bias(mask, query.scalar_type()), scale);
  out.copy_(result.squeeze(0).transpose(0, 1));
  logsumexp.copy_(sums.squeeze(0));
  if (!mask.defined()) return;
  const auto blind = mask.any(1).logical_not();  // queries that see no key
  out.masked_fill_(blind.view({-1, 1, 1}), 0);
  logsumexp.masked_fill_(blind, kInfinity);
}

std::int64_t at_index(const OptionalTensor& tensor, std::int64_t i) {
  return tensor->const_data_ptr<int>()[i * tensor->stride(0)];
}

/// \param ends [sequences + 1]: tensors are [tokens, heads, size]. Without it they are
/// [sequences, tokens, heads, size].
Sequence sequence_of(std::int64_t i, const at::Tensor& key, const at::Tensor& value,
                     const OptionalTensor& query_ends, const OptionalTensor& key_ends,
                     const OptionalTensor& used_keys, const OptionalTensor& pages) {
  const auto begin = at_index(query_ends, i);
  const auto queries = at_index(query_ends, i + 1) - begin;
  if (given(pages)) {
    const auto used = at_index(used_keys, i);
    const auto size = key.size(1);
    const auto table = pages->select(0, i).narrow(0, 0, (used + size - 1) / size);
    const auto gather = [&](const at::Tensor& pool) {
      return pool.index_select(0, table).flatten(0, 1).narrow(0, 0, used);
    };
    return {begin, queries, gather(key), gather(value)};
  }
  const auto key_begin = at_index(key_ends, i);
  const auto keys =
      given(used_keys) ? at_index(used_keys, i) : at_index(key_ends, i + 1) - key_begin;
  return {begin, queries, key.narrow(0, key_begin, keys), value.narrow(0, key_begin, keys)};
}

/// The gradient of repeated heads, summed over the repetitions.
at::Tensor sum_heads(const at::Tensor& grad, std::int64_t heads) {
  auto sequence = grad.squeeze(0).transpose(0, 1);
  if (sequence.size(1) == heads) return sequence;
  return sequence.unflatten(1, {heads, sequence.size(1) / heads})
      .sum(2, false, at::toOpMathType(grad.scalar_type()));
}

void attend_backward(const at::Tensor& grad_out, const at::Tensor& query, const Sequence& sequence,
                     const at::Tensor& out, const at::Tensor& logsumexp, double scale,
                     Window window, at::Tensor grad_query, at::Tensor grad_key,
                     at::Tensor grad_value) {
  if (sequence.empty()) return;
  const auto heads = query.size(1);
  const auto [for_query, for_key, for_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          heads_first(grad_out.contiguous()), heads_first(query),
          heads_first(repeat_heads(sequence.key, heads)),
          heads_first(repeat_heads(sequence.value, heads)), heads_first(out),
          logsumexp.unsqueeze(0), /*dropout_p=*/0.0, /*is_causal=*/false,
          as_bias(visible(sequence, window), query.scalar_type()), scale);
  grad_query.copy_(for_query.squeeze(0).transpose(0, 1));
  grad_key.copy_(sum_heads(for_key, sequence.key.size(1)));
  grad_value.copy_(sum_heads(for_value, sequence.key.size(1)));
}

}  // namespace

void attend_sequences(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const OptionalTensor& query_ends, const OptionalTensor& key_ends,
                      const OptionalTensor& used_keys, const OptionalTensor& pages, double scale,
                      std::int64_t left, std::int64_t right, at::Tensor& out,
                      at::Tensor& logsumexp) {
  const Window window{left, right};
  if (!given(query_ends)) {
    for (std::int64_t i = 0; i < query.size(0); ++i) {
      const Sequence sequence{0, query.size(1), key[i], value[i]};
      auto result = out[i];
      auto sums = logsumexp[i];
      attend(query[i], sequence, scale, window, result, sums);
    }
    return;
  }
  for (std::int64_t i = 0; i + 1 < query_ends->size(0); ++i) {
    const auto sequence = sequence_of(i, key, value, query_ends, key_ends, used_keys, pages);
    auto result = sequence.of_queries(out);
    auto sums = logsumexp.narrow(1, sequence.query_begin, sequence.queries);
    attend(sequence.of_queries(query), sequence, scale, window, result, sums);
  }
}

void differentiate_sequences(const at::Tensor& grad_out, const at::Tensor& query,
                             const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                             const at::Tensor& logsumexp, const OptionalTensor& query_ends,
                             const OptionalTensor& key_ends, double scale, std::int64_t left,
                             std::int64_t right, at::Tensor& grad_query, at::Tensor& grad_key,
                             at::Tensor& grad_value) {
  const Window window{left, right};
  // The gradients of tokens that are in no sequence or see nothing are zero.
  for (auto* grad : {&grad_query, &grad_key, &grad_value}) grad->zero_();
  if (!given(query_ends)) {
    for (std::int64_t i = 0; i < query.size(0); ++i) {
      const Sequence sequence{0, query.size(1), key[i], value[i]};
      attend_backward(grad_out[i], query[i], sequence, out[i], logsumexp[i], scale, window,
                      grad_query[i], grad_key[i], grad_value[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i + 1 < query_ends->size(0); ++i) {
    const auto sequence = sequence_of(i, key, value, query_ends, key_ends, {}, {});
    const auto keys = sequence.key.size(0);
    const auto begin = at_index(key_ends, i);
    attend_backward(sequence.of_queries(grad_out), sequence.of_queries(query), sequence,
                    sequence.of_queries(out),
                    logsumexp.narrow(1, sequence.query_begin, sequence.queries), scale, window,
                    sequence.of_queries(grad_query), grad_key.narrow(0, begin, keys),
                    grad_value.narrow(0, begin, keys));
  }
}

}  // namespace openreg::ops
