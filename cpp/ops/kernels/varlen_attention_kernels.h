#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/tensors/checks.h"

namespace openreg::ops {

/// Attention of CPU tensors, sequence by sequence, with the CPU's flash path.
/// \param query [tokens, heads, size].
/// \param key, value [tokens, heads of keys, size]; the number of the query's heads is a multiple
/// of theirs.
/// \param query_ends, key_ends int32 [sequences + 1]: the beginnings of the sequences, and the end
/// of the last one; without query_ends, tensors are [sequences, tokens, heads, size].
/// \param used_keys int32 [sequences]: how many keys count.
/// \param pages int32 [sequences, maximum of pages]: the numbers of each sequence's pages; key and
/// value are then [pages, tokens, heads of keys, size].
/// \param left, right query i sees the keys from i - left to i + right, counted so that the last
/// query is aligned with the last key; negative: all keys on that side.
/// \param logsumexp of the scores, [heads, tokens] or [sequences, heads, tokens]; infinity for a
/// query that sees no key, whose result is 0.
void attend_sequences(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const OptionalTensor& query_ends, const OptionalTensor& key_ends,
                      const OptionalTensor& used_keys, const OptionalTensor& pages, double scale,
                      std::int64_t left, std::int64_t right, at::Tensor& out,
                      at::Tensor& logsumexp);

/// The gradients of attend_sequences(), which have the shapes of query, key and value.
void differentiate_sequences(const at::Tensor& grad_out, const at::Tensor& query,
                             const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                             const at::Tensor& logsumexp, const OptionalTensor& query_ends,
                             const OptionalTensor& key_ends, double scale, std::int64_t left,
                             std::int64_t right, at::Tensor& grad_query, at::Tensor& grad_key,
                             at::Tensor& grad_value);

}  // namespace openreg::ops
