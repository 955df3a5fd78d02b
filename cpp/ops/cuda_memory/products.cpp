// Products of matrices: cuBLAS's workspace, and copies of operands whose strides it does not take.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ops/cuda_memory/formulas.h"

namespace openreg::ops::cuda_memory {

namespace {

bool is_computed_by_cublas(const at::Tensor& operand) {
  return at::isFloatingType(operand.scalar_type()) || at::isComplexType(operand.scalar_type()) ||
         operand.scalar_type() == at::kChar;  // _int_mm
}

/// Whether the rows or the columns of the last two dimensions are contiguous and do not overlap.
bool has_leading_dimension(const at::Tensor& matrix) {
  const auto rows = matrix.size(-2);
  const auto columns = matrix.size(-1);
  const auto fits = [](std::int64_t fast, std::int64_t leading, std::int64_t size) {
    return fast == 1 && leading >= std::max<std::int64_t>(1, size);
  };
  return fits(matrix.stride(-2), matrix.stride(-1), rows) ||
         fits(matrix.stride(-1), matrix.stride(-2), columns);
}

bool is_copied(const at::Tensor& operand) {
  if (operand.dim() == 2)
    return !operand.is_non_overlapping_and_dense() && !has_leading_dimension(operand);
  return !has_leading_dimension(operand) &&
         !(operand.is_contiguous() && operand.stride(1) != 0 && operand.stride(2) != 0);
}

c10::DataPtr copy_if_needed(const at::Tensor& operand, Scratch& scratch) {
  return is_copied(operand) ? scratch.copy_of(operand) : c10::DataPtr();
}

/// The two factors are the last of the operands.
std::pair<at::Tensor, at::Tensor> factors(const Call& call) {
  static constexpr auto kNames = std::to_array<std::array<std::string_view, 2>>(
      {{"mat1", "mat2"}, {"batch1", "batch2"}, {"self", "mat2"}, {"mat", "vec"}});
  for (const auto& [first, second] : kNames) {
    if (call.has(first) && call.has(second)) return {call.tensor(first), call.tensor(second)};
  }
  // A kernel that does not have the arguments of its schema: two factors, or a summand before them.
  const auto all = call.tensors();
  const auto at = all.size() > 3 ? 1 : 0;
  return {all[static_cast<std::size_t>(at)], all[static_cast<std::size_t>(at) + 1]};
}

}  // namespace

void allocate_for_product(const Call& call, Scratch& scratch) {
  const auto [first, second] = factors(call);
  const auto rank = first.dim();
  if (rank != second.dim() || (rank != 2 && rank != 3) || first.numel() == 0 ||
      second.numel() == 0 || !is_computed_by_cublas(first))
    return;
  const auto first_copy = copy_if_needed(first, scratch);
  const auto second_copy = copy_if_needed(second, scratch);
  scratch.use_blas_workspace();
}

void allocate_for_matrix_vector_product(const Call& call, Scratch& scratch) {
  const auto [matrix, vector] = factors(call);
  if (matrix.dim() != 2 || matrix.numel() == 0 || !is_computed_by_cublas(matrix)) return;
  c10::DataPtr copy;
  if (!has_leading_dimension(matrix)) copy = scratch.copy_of(matrix);
  scratch.use_blas_workspace();
}

void allocate_for_dot_product(const Call& call, Scratch& scratch) {
  const auto& first = call.tensors()[0];
  if (first.numel() != 0 && is_computed_by_cublas(first)) scratch.use_blas_workspace();
}

}  // namespace openreg::ops::cuda_memory
