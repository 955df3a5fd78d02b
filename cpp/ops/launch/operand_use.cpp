#include "ops/launch/operand_use.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/words.h"

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

/// Operands that some operators use in the same way; names with spaces between.
struct Row {
  std::string_view ops;
  std::string_view operands;
  Use use;
  std::string_view reason;
  OperandUse::When when = kAlways;
  std::string_view condition{};
};

constexpr auto kRows = std::to_array<Row>({
    {"native_batch_norm_backward", "save_invstd save_mean", kReadsNone,
     "evaluation uses the running statistics", kZero, "train"},
    {"batch_norm_backward", "save_mean save_var", kReadsNone,
     "evaluation uses the running statistics", kZero, "update"},
    {"nll_loss2d_backward nll_loss_backward", "total_weight", kReadsNone,
     "only a mean is divided by it", kZero, "reduction"},
    {"lu_unpack", "LU_data", kReadsNone, "only the factors need it", kZero, "unpack_data"},
    {"lu_unpack", "LU_pivots", kReadsNone, "only the permutation needs them", kZero,
     "unpack_pivots"},
    {"native_layer_norm_backward", "bias", kReadsNone, "only whether there is one is used"},
    {"_cdist_backward", "cdist grad x1 x2", kReadsNone, "the number of differences has no gradient",
     kZero, "p"},
    {"_pdist_backward", "grad pdist self", kReadsNone, "the number of differences has no gradient",
     kZero, "p"},
    {"pow", "self", kReadsNone, "the power is 1 whatever the base is", kZero, "exponent"},
    {"masked_select", "self", kReadsNone, "there is no mask", kZero, "mask"},
    {"nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward", "weight",
     kReadsNone, "there is no target", kZero, "target"},
    {"native_batch_norm_backward", "running_mean running_var", kReadsNone,
     "training uses the statistics of the batch", kNotZero, "train"},
    {"batch_norm_backward", "running_mean running_var", kReadsNone,
     "training uses the statistics of the batch", kNotZero, "update"},
    {"scatter scatter_add scatter_reduce", "src", kReadsNone, kNoIndex, kZero, "index"},
    {"batch_norm_backward", "input running_mean running_var save_mean save_var", kReadsNone,
     kNotNeeded, kZero, "output_mask[0] output_mask[1]"},
    {"native_batch_norm_backward", "input running_mean running_var save_invstd save_mean",
     kReadsNone, kNotNeeded, kZero, "output_mask[0] output_mask[1]"},
    {"native_group_norm_backward native_layer_norm_backward", "input mean rstd", kReadsNone,
     kNotNeeded, kZero, "output_mask[0] output_mask[1]"},
    {"batch_norm_backward convolution_backward native_batch_norm_backward "
     "native_group_norm_backward native_layer_norm_backward",
     "weight", kReadsNone, kNotNeeded, kZero, "output_mask[0]"},
    {"convolution_backward", "input", kReadsNone, kNotNeeded, kZero, "output_mask[1]"},
    {"native_batch_norm_backward", "input running_mean", kReadsNone, kNotNeeded, kZero,
     "train output_mask[1]"},
    {"batch_norm_backward", "input running_mean", kReadsNone, kNotNeeded, kZero,
     "update output_mask[1]"},
    {"convolution_backward", "weight", kReadsNone, kNothing, kZero, "grad_output"},
    {"batch_norm_backward native_batch_norm_backward native_group_norm_backward "
     "native_layer_norm_backward",
     "weight", kReadsNone, kNothing, kZero, "input"},
    {"_addmm_activation addmm", "mat1 mat2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addbmm baddbmm", "batch1 batch2", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"addmv", "mat vec", kReadsNone, kScaledByZero, kZero, "alpha"},
    {"_addmm_activation addbmm addmm addmv addr baddbmm", "self", kReadsNone, kScaledByZero, kZero,
     "beta"},
    {"_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward "
     "adaptive_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward "
     "fractional_max_pool2d_backward fractional_max_pool3d_backward "
     "max_pool2d_with_indices_backward max_pool3d_with_indices_backward nll_loss2d_backward "
     "nll_loss_backward reflection_pad1d_backward reflection_pad2d_backward "
     "reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward "
     "replication_pad3d_backward",
     "self", kReadsNone, kShapeOnly},
    {"masked_scatter", "source", kReadsSome, "as many as the mask has"},
    {"scatter scatter_add scatter_reduce", "src", kReadsSome, "as many as there are indices"},
    {"_segment_reduce_backward", "data grad output", kReadsSome, "in the segments"},
    {"segment_reduce", "data", kReadsSome, "in the segments"},
    {"_flash_attention_forward", "key query value", kReadsSome, "of the sequences and pages"},
    {"trace", "self", kReadsSome, "on the diagonal"},
    {"narrow_copy", "self", kReadsSome, "the part that is copied"},
    {"grid_sampler_2d grid_sampler_3d", "input", kReadsSome, "where the grid points"},
    {"grid_sampler_2d_backward grid_sampler_3d_backward", "grad_output input", kReadsSome,
     "where the grid points"},
    {"nll_loss2d_backward nll_loss_backward", "weight", kReadsSome, kByClass},
    {"nll_loss2d_forward nll_loss_forward", "self weight", kReadsSome, kByClass},
    {"_embedding_bag _embedding_bag_forward_only embedding embedding_bag", "weight", kReadsSome,
     kByIndex},
    {"_unsafe_index _unsafe_masked_index gather index index_select take take_along_dim", "self",
     kReadsSome, kByIndex},
    {"masked_select", "self", kReadsSome, kByMask},
    {"where", "other self", kReadsSome, kByMask},
    {"_grouped_mm", "mat2 self", kReadsSome, kByOffset},
    {"_scaled_grouped_mm", "mat2 scale_a scale_b self", kReadsSome, kByOffset},
    {"_cholesky_solve_helper _linalg_eigh triangular_solve", "A", kReadsSome, kByPlace},
    {"cholesky cholesky_inverse linalg_cholesky_ex linalg_ldl_factor_ex linalg_solve_triangular "
     "ormqr tril triu",
     "self", kReadsSome, kByPlace},
    {"cholesky_solve", "input2", kReadsSome, kByPlace},
    {"linalg_householder_product", "input", kReadsSome, kByPlace},
    {"linalg_ldl_solve", "LD", kReadsSome, kByPlace},
    {"bucketize", "boundaries", kReadsSome, kBySearch},
    {"searchsorted", "sorted_sequence sorter", kReadsSome, kBySearch},
    {"_ctc_loss", "log_probs targets", kReadsSome, kBySequence},
    {"_ctc_loss_backward", "log_alpha log_probs targets", kReadsSome, kBySequence},
    {"_flash_attention_backward", "grad_out key logsumexp out query value", kReadsSome,
     kBySequence},
    {"_jagged_to_padded_dense_forward", "values", kReadsSome, kBySequence},
    {"_pack_padded_sequence", "input", kReadsSome, kBySequence},
    {"_padded_dense_to_jagged_forward", "dense", kReadsSome, kBySequence},
    {"_native_batch_norm_legit native_batch_norm", "running_mean running_var", kWritesNone,
     "evaluation only reads them", kZero, "training"},
    {"index_add index_copy index_fill index_reduce put scatter scatter_add scatter_reduce", "self",
     kWritesNone, kNoIndex, kZero, "index"},
    {"_index_put_impl _unsafe_index_put embedding_renorm index_put", "self", kWritesNone, kNoIndex,
     kZero, "indices"},
    {"_index_put_impl _unsafe_index_put embedding_renorm index_add index_copy index_fill index_put "
     "index_reduce put scatter scatter_add scatter_reduce",
     "self", kWritesSome, kByIndex},
    {"masked_fill masked_scatter", "self", kWritesSome, kByMask},
    {"tril triu", "self", kWritesSome, kByPlace},
});

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

std::span<const OperandUse> all_operand_uses() {
  static const auto& all = *new std::vector<OperandUse>([] {
    std::vector<OperandUse> uses;
    for (const auto& row : kRows) {
      for (const auto op : words_of(row.ops))
        for (const auto operand : words_of(row.operands))
          uses.push_back({op, operand, row.use, row.reason, row.when, row.condition});
    }
    std::ranges::sort(uses, {}, &OperandUse::op);
    return uses;
  }());
  return all;
}

std::span<const OperandUse> operand_uses(std::string_view op) {
  // Not equal_range: Clang 14 does not compile the subrange of GCC 12's library.
  const auto name = base_name(op);
  const auto all = all_operand_uses();
  return {std::ranges::lower_bound(all, name, {}, &OperandUse::op),
          std::ranges::upper_bound(all, name, {}, &OperandUse::op)};
}

bool OperandUse::holds(IsZero is_zero) const {
  return !any_word(condition, [&](std::string_view argument) {
    return is_zero(argument) != (when == When::kZero);
  });
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
