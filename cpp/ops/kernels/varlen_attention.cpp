// Attention over sequences of several lengths, one after another in one tensor
// (torch.nn.attention.varlen): the operators of CUDA's flash path. The CPU has a flash path for
// sequences of one length, which is called once for each sequence. The device reads where sequences
// begin, so all of it is one command.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "ops/kernels/varlen_attention_kernels.h"
#include "ops/launch/function_kernel.h"
#include "ops/tensors/checks.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

const FunctionKernel<&attend_sequences> attention_kernel{"aten::_flash_attention_forward"};
const FunctionKernel<&differentiate_sequences> attention_backward_kernel{
    "aten::_flash_attention_backward"};

/// If given, it must have `size` rows.
void check_indices(const char* name, const OptionalTensor& tensor, std::int64_t dim,
                   std::int64_t size) {
  if (!given(tensor)) return;
  TORCH_CHECK(tensor->scalar_type() == at::kInt, name, " must have dtype int32, got ",
              tensor->scalar_type());
  TORCH_CHECK(tensor->dim() == dim && tensor->size(0) == size, name, " must have ", dim,
              " dimensions and ", size, " rows (got ", tensor->sizes(), ")");
}

void check_tokens(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::int64_t query_dim, std::int64_t key_dim) {
  expect_floating("flash_attention", query);
  TORCH_CHECK(query.dim() == query_dim && key.dim() == key_dim,
              "flash_attention: expected a query of ", query_dim, " and a key of ", key_dim,
              " dimensions (got ", query.sizes(), " and ", key.sizes(), ")");
  TORCH_CHECK(key.sizes() == value.sizes(),
              "flash_attention: expected a key and a value of one shape (got ", key.sizes(),
              " and ", value.sizes(), ")");
  TORCH_CHECK(
      query.size(-1) == key.size(-1) && key.size(-2) > 0 && query.size(-2) % key.size(-2) == 0,
      "flash_attention: expected heads of one size, and as many of the query as of the key, "
      "or a multiple (got ",
      query.sizes(), " and ", key.sizes(), ")");
  for (const auto* tensor : {&query, &key, &value}) {
    TORCH_CHECK(tensor->scalar_type() == query.scalar_type(),
                "query and key must have the same dtype");
    TORCH_CHECK(tensor->stride(-1) == 1, "Input tensor must have contiguous last dimension");
  }
}

void check_call(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const OptionalTensor& query_ends, const OptionalTensor& key_ends,
                const OptionalTensor& used_keys, const OptionalTensor& pages, double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0, "openreg: flash attention has no dropout (got ",
                              dropout_p, ", expected 0)");
  const bool varlen = given(query_ends);
  check_tokens(query, key, value, varlen ? 3 : 4, varlen && !given(pages) ? 3 : 4);
  if (!varlen) {
    TORCH_CHECK(!given(key_ends) && !given(used_keys) && !given(pages),
                "flash_attention: lengths of keys need those of queries (cum_seq_q)");
    TORCH_CHECK(query.size(0) == key.size(0), "flash_attention: expected as many queries as keys (",
                "got batches of ", query.size(0), " and ", key.size(0), ")");
    return;
  }
  const auto ends = query_ends->numel();
  TORCH_CHECK(ends > 0, "cu_seqlens_q must not be empty");
  check_indices("cu_seqlens_q", query_ends, 1, ends);
  check_indices("cu_seqlens_k", key_ends, 1, ends);
  check_indices("seqused_k", used_keys, 1, ends - 1);
  check_indices("block_table", pages, 2, ends - 1);
  TORCH_CHECK(given(pages) ? given(used_keys) && key.size(1) > 0 : given(key_ends),
              "flash_attention: expected cum_seq_k, or block_table and seqused_k");
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

/// How many keys to the left and to the right a query sees; negative: all.
std::pair<std::int64_t, std::int64_t> window_of(bool is_causal,
                                                const std::optional<c10::SymInt>& left,
                                                const std::optional<c10::SymInt>& right) {
  const auto side = [](const std::optional<c10::SymInt>& size) {
    return size ? Argument<c10::SymInt>::meta(*size) : -1;
  };
  return {side(left), is_causal ? 0 : side(right)};
}

/// \return logsumexp; the shapes of all are those of attend_sequences().
at::Tensor flash_attention_into(at::Tensor& out, const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const OptionalTensor& query_ends,
                                const OptionalTensor& key_ends, c10::SymInt /*max_q*/,
                                c10::SymInt /*max_k*/, double dropout_p, bool is_causal,
                                bool return_debug_mask, std::optional<double> scale,
                                std::optional<c10::SymInt> left, std::optional<c10::SymInt> right,
                                const OptionalTensor& used_keys, const OptionalTensor& alibi_slopes,
                                const OptionalTensor& pages,
                                std::optional<std::int64_t> /*num_splits*/) {
  check_call(query, key, value, query_ends, key_ends, used_keys, pages, dropout_p);
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask && !given(alibi_slopes),
                              "openreg: flash attention has no debug mask and no alibi slopes; "
                              "pass return_debug_mask=False and alibi_slopes=None");
  TORCH_CHECK(out.sizes() == query.sizes() && out.scalar_type() == query.scalar_type(),
              "flash_attention: expected out like the query, ", query.sizes(), " of ",
              query.scalar_type(), " (got ", out.sizes(), " of ", out.scalar_type(), ")");
  const auto dtype = at::toOpMathType(query.scalar_type());
  auto logsumexp =
      given(query_ends)
          ? empty_on(query.device(), {query.size(1), query.size(0)}, dtype)
          : empty_on(query.device(), {query.size(0), query.size(2), query.size(1)}, dtype);
  const auto [to_left, to_right] = window_of(is_causal, left, right);
  attention_kernel.launch(query.device(), query, key, value, query_ends, key_ends, used_keys, pages,
                          scale_of(query, scale), to_left, to_right, out, logsumexp);
  return logsumexp;
}

/// The state of random numbers, which is not used without dropout, and a result that CUDA leaves
/// unused.
std::tuple<at::Tensor, at::Tensor> random_state(c10::Device device) {
  return {empty_on(device, {2}, at::kUInt64).zero_(), empty_on(device, {}, at::kUInt64).zero_()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_attention_forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const OptionalTensor& query_ends, const OptionalTensor& key_ends, c10::SymInt max_q,
    c10::SymInt max_k, double dropout_p, bool is_causal, bool return_debug_mask,
    std::optional<double> scale, std::optional<c10::SymInt> left, std::optional<c10::SymInt> right,
    const OptionalTensor& used_keys, const OptionalTensor& alibi_slopes,
    const OptionalTensor& pages, std::optional<std::int64_t> num_splits) {
  auto out = at::empty_like(query, at::MemoryFormat::Contiguous);
  auto logsumexp =
      flash_attention_into(out, query, key, value, query_ends, key_ends, max_q, max_k, dropout_p,
                           is_causal, return_debug_mask, scale, std::move(left), std::move(right),
                           used_keys, alibi_slopes, pages, num_splits);
  const auto [state, unused] = random_state(query.device());
  return {out, logsumexp, state, unused, empty_on(query.device(), {0}, query.scalar_type())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp,
    const at::Tensor& query_ends, const at::Tensor& key_ends, c10::SymInt /*max_q*/,
    c10::SymInt /*max_k*/, double dropout_p, bool is_causal, const at::Tensor& /*rng_state*/,
    const at::Tensor& /*unused*/, std::optional<double> scale, std::optional<c10::SymInt> left,
    std::optional<c10::SymInt> right) {
  check_call(query, key, value, query_ends, key_ends, {}, {}, dropout_p);
  TORCH_CHECK(grad_out.sizes() == query.sizes() && out.sizes() == query.sizes() &&
                  logsumexp.numel() * query.size(-1) == query.numel() &&
                  logsumexp.dim() == query.dim() - 1,
              "flash_attention: expected grad_out and out like the query ", query.sizes(),
              ", and logsumexp of its tokens and heads (got ", grad_out.sizes(), ", ", out.sizes(),
              " and ", logsumexp.sizes(), ")");
  auto grad_query = at::empty_like(query);
  auto grad_key = at::empty_like(key);
  auto grad_value = at::empty_like(value);
  const auto [to_left, to_right] = window_of(is_causal, left, right);
  attention_backward_kernel.launch(query.device(), grad_out, query, key, value, out, logsumexp,
                                   query_ends, key_ends, scale_of(query, scale), to_left, to_right,
                                   grad_query, grad_key, grad_value);
  return {grad_query, grad_key, grad_value};
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_flash_attention_forward", TORCH_FN(flash_attention_forward));
  m.impl("_flash_attention_forward_no_dropout_inplace", TORCH_FN(flash_attention_into));
  m.impl("_flash_attention_backward", TORCH_FN(flash_attention_backward));
}

}  // namespace openreg::ops
