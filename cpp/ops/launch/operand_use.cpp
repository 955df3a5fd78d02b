#include "ops/launch/operand_use.h"

#include <algorithm>
#include <array>

namespace openreg::ops {

namespace {

using enum Use;
using enum OperandUse::When;

constexpr std::string_view kByIndex = "where the indices point";
constexpr std::string_view kByMask = "where the mask says so";
constexpr std::string_view kByClass = "of the classes that occur";
constexpr std::string_view kByOffset = "of the groups that have rows";
constexpr std::string_view kByPlace = "on one side of the diagonal";
constexpr std::string_view kBySearch = "as far as the search goes";
constexpr std::string_view kBySequence = "of the sequences, without padding";
constexpr std::string_view kNothing = "there is nothing to scale";
constexpr std::string_view kShapeOnly = "only its shape is used";
constexpr std::string_view kNoIndex = "there is no index";
constexpr std::string_view kScaledByZero = "its factor is 0, so its content is ignored";
constexpr std::string_view kNotNeeded = "needed only for gradients that are not asked for";

// In the order of the operators' names (checked below).
constexpr auto kUses = std::to_array<OperandUse>({
    {"_adaptive_avg_pool2d_backward", "self", kReadsNone, kShapeOnly},
    {"_adaptive_avg_pool3d_backward", "self", kReadsNone, kShapeOnly},
    {"_addmm_activation", "mat1", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"_addmm_activation", "mat2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"_addmm_activation", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"_cdist_backward", "cdist", kReadsNone, "the number of differences has no gradient", kZero,
     "p"},
    {"_cdist_backward", "grad", kReadsNone, "the number of differences has no gradient", kZero,
     "p"},
    {"_cdist_backward", "x1", kReadsNone, "the number of differences has no gradient", kZero, "p"},
    {"_cdist_backward", "x2", kReadsNone, "the number of differences has no gradient", kZero, "p"},
    {"_cholesky_solve_helper", "A", kReadsSome, kByPlace},
    {"_ctc_loss", "log_probs", kReadsSome, kBySequence},
    {"_ctc_loss", "targets", kReadsSome, kBySequence},
    {"_ctc_loss_backward", "log_alpha", kReadsSome, kBySequence},
    {"_ctc_loss_backward", "log_probs", kReadsSome, kBySequence},
    {"_ctc_loss_backward", "targets", kReadsSome, kBySequence},
    {"_embedding_bag", "weight", kReadsSome, kByIndex},
    {"_embedding_bag_forward_only", "weight", kReadsSome, kByIndex},
    {"_flash_attention_backward", "grad_out", kReadsSome, kBySequence},
    {"_flash_attention_backward", "key", kReadsSome, kBySequence},
    {"_flash_attention_backward", "logsumexp", kReadsSome, kBySequence},
    {"_flash_attention_backward", "out", kReadsSome, kBySequence},
    {"_flash_attention_backward", "query", kReadsSome, kBySequence},
    {"_flash_attention_backward", "value", kReadsSome, kBySequence},
    {"_flash_attention_forward", "key", kReadsSome, "of the sequences and pages"},
    {"_flash_attention_forward", "query", kReadsSome, "of the sequences and pages"},
    {"_flash_attention_forward", "value", kReadsSome, "of the sequences and pages"},
    {"_grouped_mm", "mat2", kReadsSome, kByOffset},
    {"_grouped_mm", "self", kReadsSome, kByOffset},
    {"_index_put_impl", "self", kWritesNone, kNoIndex, kZero, "indices"},
    {"_index_put_impl", "self", kWritesSome, kByIndex},
    {"_jagged_to_padded_dense_forward", "values", kReadsSome, kBySequence},
    {"_linalg_eigh", "A", kReadsSome, kByPlace},
    {"_native_batch_norm_legit", "running_mean", kWritesNone, "evaluation only reads them", kZero,
     "training"},
    {"_native_batch_norm_legit", "running_var", kWritesNone, "evaluation only reads them", kZero,
     "training"},
    {"_pack_padded_sequence", "input", kReadsSome, kBySequence},
    {"_padded_dense_to_jagged_forward", "dense", kReadsSome, kBySequence},
    {"_pdist_backward", "grad", kReadsNone, "the number of differences has no gradient", kZero,
     "p"},
    {"_pdist_backward", "pdist", kReadsNone, "the number of differences has no gradient", kZero,
     "p"},
    {"_pdist_backward", "self", kReadsNone, "the number of differences has no gradient", kZero,
     "p"},
    {"_scaled_grouped_mm", "mat2", kReadsSome, kByOffset},
    {"_scaled_grouped_mm", "scale_a", kReadsSome, kByOffset},
    {"_scaled_grouped_mm", "scale_b", kReadsSome, kByOffset},
    {"_scaled_grouped_mm", "self", kReadsSome, kByOffset},
    {"_segment_reduce_backward", "data", kReadsSome, "in the segments"},
    {"_segment_reduce_backward", "grad", kReadsSome, "in the segments"},
    {"_segment_reduce_backward", "output", kReadsSome, "in the segments"},
    {"_unsafe_index", "self", kReadsSome, kByIndex},
    {"_unsafe_index_put", "self", kWritesSome, kByIndex},
    {"_unsafe_index_put", "self", kWritesNone, kNoIndex, kZero, "indices"},
    {"_unsafe_masked_index", "self", kReadsSome, kByIndex},
    {"adaptive_max_pool2d_backward", "self", kReadsNone, kShapeOnly},
    {"adaptive_max_pool3d_backward", "self", kReadsNone, kShapeOnly},
    {"addbmm", "batch1", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addbmm", "batch2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addbmm", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"addmm", "mat1", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addmm", "mat2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addmm", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"addmv", "mat", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addmv", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"addmv", "vec", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addr", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"avg_pool2d_backward", "self", kReadsNone, kShapeOnly},
    {"avg_pool3d_backward", "self", kReadsNone, kShapeOnly},
    {"baddbmm", "batch1", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"baddbmm", "batch2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"baddbmm", "self", kReadsNone, kScaledByZero, kZero, "beta"},
    {"batch_norm_backward", "input", kReadsNone, kNotNeeded, kZero, "update output_mask[1]"},
    {"batch_norm_backward", "input", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"batch_norm_backward", "running_mean", kReadsNone, kNotNeeded, kZero, "update output_mask[1]"},
    {"batch_norm_backward", "running_mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"batch_norm_backward", "running_mean", kReadsNone, "training uses the statistics of the batch",
     kNotZero, "update"},
    {"batch_norm_backward", "running_var", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"batch_norm_backward", "running_var", kReadsNone, "training uses the statistics of the batch",
     kNotZero, "update"},
    {"batch_norm_backward", "save_mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"batch_norm_backward", "save_mean", kReadsNone, "evaluation uses the running statistics",
     kZero, "update"},
    {"batch_norm_backward", "save_var", kReadsNone, "evaluation uses the running statistics", kZero,
     "update"},
    {"batch_norm_backward", "save_var", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"batch_norm_backward", "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"batch_norm_backward", "weight", kReadsNone, kNothing, kZero, "input"},
    {"bucketize", "boundaries", kReadsSome, kBySearch},
    {"cholesky", "self", kReadsSome, kByPlace},
    {"cholesky_inverse", "self", kReadsSome, kByPlace},
    {"cholesky_solve", "input2", kReadsSome, kByPlace},
    {"convolution_backward", "input", kReadsNone, kNotNeeded, kZero, "output_mask[1]"},
    {"convolution_backward", "weight", kReadsNone, kNothing, kZero, "grad_output"},
    {"convolution_backward", "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"embedding", "weight", kReadsSome, kByIndex},
    {"embedding_bag", "weight", kReadsSome, kByIndex},
    {"embedding_renorm", "self", kWritesNone, kNoIndex, kZero, "indices"},
    {"embedding_renorm", "self", kWritesSome, kByIndex},
    {"fractional_max_pool2d_backward", "self", kReadsNone, kShapeOnly},
    {"fractional_max_pool3d_backward", "self", kReadsNone, kShapeOnly},
    {"gather", "self", kReadsSome, kByIndex},
    {"grid_sampler_2d", "input", kReadsSome, "where the grid points"},
    {"grid_sampler_2d_backward", "grad_output", kReadsSome, "where the grid points"},
    {"grid_sampler_2d_backward", "input", kReadsSome, "where the grid points"},
    {"grid_sampler_3d", "input", kReadsSome, "where the grid points"},
    {"grid_sampler_3d_backward", "grad_output", kReadsSome, "where the grid points"},
    {"grid_sampler_3d_backward", "input", kReadsSome, "where the grid points"},
    {"index", "self", kReadsSome, kByIndex},
    {"index_add", "self", kWritesSome, kByIndex},
    {"index_add", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"index_copy", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"index_copy", "self", kWritesSome, kByIndex},
    {"index_fill", "self", kWritesSome, kByIndex},
    {"index_fill", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"index_put", "self", kWritesNone, kNoIndex, kZero, "indices"},
    {"index_put", "self", kWritesSome, kByIndex},
    {"index_reduce", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"index_reduce", "self", kWritesSome, kByIndex},
    {"index_select", "self", kReadsSome, kByIndex},
    {"linalg_cholesky_ex", "self", kReadsSome, kByPlace},
    {"linalg_householder_product", "input", kReadsSome, kByPlace},
    {"linalg_ldl_factor_ex", "self", kReadsSome, kByPlace},
    {"linalg_ldl_solve", "LD", kReadsSome, kByPlace},
    {"linalg_solve_triangular", "self", kReadsSome, kByPlace},
    {"lu_unpack", "LU_data", kReadsNone, "only the factors need it", kZero, "unpack_data"},
    {"lu_unpack", "LU_pivots", kReadsNone, "only the permutation needs them", kZero,
     "unpack_pivots"},
    {"masked_fill", "self", kWritesSome, kByMask},
    {"masked_scatter", "self", kWritesSome, kByMask},
    {"masked_scatter", "source", kReadsSome, "as many as the mask has"},
    {"masked_select", "self", kReadsNone, "there is no mask", kZero, "mask"},
    {"masked_select", "self", kReadsSome, kByMask},
    {"max_pool2d_with_indices_backward", "self", kReadsNone, kShapeOnly},
    {"max_pool3d_with_indices_backward", "self", kReadsNone, kShapeOnly},
    {"narrow_copy", "self", kReadsSome, "the part that is copied"},
    {"native_batch_norm", "running_mean", kWritesNone, "evaluation only reads them", kZero,
     "training"},
    {"native_batch_norm", "running_var", kWritesNone, "evaluation only reads them", kZero,
     "training"},
    {"native_batch_norm_backward", "input", kReadsNone, kNotNeeded, kZero, "train output_mask[1]"},
    {"native_batch_norm_backward", "input", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "running_mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "running_mean", kReadsNone, kNotNeeded, kZero,
     "train output_mask[1]"},
    {"native_batch_norm_backward", "running_mean", kReadsNone,
     "training uses the statistics of the batch", kNotZero, "train"},
    {"native_batch_norm_backward", "running_var", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "running_var", kReadsNone,
     "training uses the statistics of the batch", kNotZero, "train"},
    {"native_batch_norm_backward", "save_invstd", kReadsNone,
     "evaluation uses the running statistics", kZero, "train"},
    {"native_batch_norm_backward", "save_invstd", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "save_mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "save_mean", kReadsNone,
     "evaluation uses the running statistics", kZero, "train"},
    {"native_batch_norm_backward", "weight", kReadsNone, kNothing, kZero, "input"},
    {"native_batch_norm_backward", "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"native_group_norm_backward", "input", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_group_norm_backward", "mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_group_norm_backward", "rstd", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_group_norm_backward", "weight", kReadsNone, kNothing, kZero, "input"},
    {"native_group_norm_backward", "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"native_layer_norm_backward", "bias", kReadsNone, "only whether there is one is used"},
    {"native_layer_norm_backward", "input", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_layer_norm_backward", "mean", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_layer_norm_backward", "rstd", kReadsNone, kNotNeeded, kZero,
     "output_mask[0] output_mask[1]"},
    {"native_layer_norm_backward", "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"native_layer_norm_backward", "weight", kReadsNone, kNothing, kZero, "input"},
    {"nll_loss2d_backward", "self", kReadsNone, kShapeOnly},
    {"nll_loss2d_backward", "total_weight", kReadsNone, "only a mean is divided by it", kZero,
     "reduction"},
    {"nll_loss2d_backward", "weight", kReadsNone, "there is no target", kZero, "target"},
    {"nll_loss2d_backward", "weight", kReadsSome, kByClass},
    {"nll_loss2d_forward", "self", kReadsSome, kByClass},
    {"nll_loss2d_forward", "weight", kReadsSome, kByClass},
    {"nll_loss2d_forward", "weight", kReadsNone, "there is no target", kZero, "target"},
    {"nll_loss_backward", "self", kReadsNone, kShapeOnly},
    {"nll_loss_backward", "total_weight", kReadsNone, "only a mean is divided by it", kZero,
     "reduction"},
    {"nll_loss_backward", "weight", kReadsNone, "there is no target", kZero, "target"},
    {"nll_loss_backward", "weight", kReadsSome, kByClass},
    {"nll_loss_forward", "self", kReadsSome, kByClass},
    {"nll_loss_forward", "weight", kReadsNone, "there is no target", kZero, "target"},
    {"nll_loss_forward", "weight", kReadsSome, kByClass},
    {"ormqr", "self", kReadsSome, kByPlace},
    {"pow", "self", kReadsNone, "the power is 1 whatever the base is", kZero, "exponent"},
    {"put", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"put", "self", kWritesSome, kByIndex},
    {"reflection_pad1d_backward", "self", kReadsNone, kShapeOnly},
    {"reflection_pad2d_backward", "self", kReadsNone, kShapeOnly},
    {"reflection_pad3d_backward", "self", kReadsNone, kShapeOnly},
    {"replication_pad1d_backward", "self", kReadsNone, kShapeOnly},
    {"replication_pad2d_backward", "self", kReadsNone, kShapeOnly},
    {"replication_pad3d_backward", "self", kReadsNone, kShapeOnly},
    {"scatter", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"scatter", "self", kWritesSome, kByIndex},
    {"scatter", "src", kReadsNone, kNoIndex, kZero, "index"},
    {"scatter", "src", kReadsSome, "as many as there are indices"},
    {"scatter_add", "self", kWritesSome, kByIndex},
    {"scatter_add", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"scatter_add", "src", kReadsSome, "as many as there are indices"},
    {"scatter_add", "src", kReadsNone, kNoIndex, kZero, "index"},
    {"scatter_reduce", "self", kWritesNone, kNoIndex, kZero, "index"},
    {"scatter_reduce", "self", kWritesSome, kByIndex},
    {"scatter_reduce", "src", kReadsSome, "as many as there are indices"},
    {"scatter_reduce", "src", kReadsNone, kNoIndex, kZero, "index"},
    {"searchsorted", "sorted_sequence", kReadsSome, kBySearch},
    {"searchsorted", "sorter", kReadsSome, kBySearch},
    {"segment_reduce", "data", kReadsSome, "in the segments"},
    {"take", "self", kReadsSome, kByIndex},
    {"take_along_dim", "self", kReadsSome, kByIndex},
    {"trace", "self", kReadsSome, "on the diagonal"},
    {"triangular_solve", "A", kReadsSome, kByPlace},
    {"tril", "self", kWritesSome, kByPlace},
    {"tril", "self", kReadsSome, kByPlace},
    {"triu", "self", kReadsSome, kByPlace},
    {"triu", "self", kWritesSome, kByPlace},
    {"where", "other", kReadsSome, kByMask},
    {"where", "self", kReadsSome, kByMask},
});

constexpr bool is_sorted() { return std::ranges::is_sorted(kUses, {}, &OperandUse::op); }
static_assert(is_sorted());

/// "aten::index_put_.hacked" -> "index_put"
std::string_view base_name(std::string_view op) {
  constexpr std::string_view kNamespace = "aten::";
  if (!op.starts_with(kNamespace)) return {};
  op.remove_prefix(kNamespace.size());
  op = op.substr(0, op.find('.'));
  if (op.ends_with('_')) op.remove_suffix(1);
  return op;
}

}  // namespace

std::span<const OperandUse> all_operand_uses() { return kUses; }

std::span<const OperandUse> operand_uses(std::string_view op) {
  // Not equal_range: Clang 14 does not compile the subrange of GCC 12's library.
  const auto name = base_name(op);
  return {std::ranges::lower_bound(kUses, name, {}, &OperandUse::op),
          std::ranges::upper_bound(kUses, name, {}, &OperandUse::op)};
}

bool OperandUse::holds(IsZero is_zero) const {
  auto left = condition;
  while (!left.empty()) {
    const auto end = std::min(left.find(' '), left.size());
    if (is_zero(left.substr(0, end)) != (when == When::kZero)) return false;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return true;
}

Uses uses_of(std::span<const OperandUse> uses, std::string_view operand, bool writes,
             IsZero is_zero) {
  Uses found{.writes = writes};
  const auto says = [&](Use use) {
    return std::ranges::any_of(uses, [&](const OperandUse& each) {
      return each.use == use && each.operand == operand && each.holds(is_zero);
    });
  };
  if (found.writes && says(kWritesNone)) found.writes = false;
  found.reads = !says(kReadsNone);
  found.some = says(found.writes ? kWritesSome : kReadsSome);
  return found;
}

}  // namespace openreg::ops
