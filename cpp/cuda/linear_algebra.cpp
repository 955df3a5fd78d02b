// Linear algebra for which CUDA takes other arguments than the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// _linalg_svd(A, full_matrices, compute_uv, driver): a driver names an algorithm of cuSOLVER. The
/// CPU's stands for all.
void linalg_svd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto& driver = torch::jit::peek(*stack, 3, op.schema().arguments().size());
  if (!driver.isNone()) {
    const auto& name = driver.toStringRef();
    TORCH_CHECK(name == "gesvd" || name == "gesvdj" || name == "gesvda",
                "torch.linalg.svd: unknown svd driver ", name,
                " in svd_cusolver computation. Supported drivers: gesvd, gesvdj, gesvda");
    driver = c10::IValue();
  }
  fallback(op, stack);
}

/// _int_mm(self, mat2): cuBLAS has products of 8-bit integers for some sizes only.
void int_mm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const at::Tensor mat2 = torch::jit::peek(*stack, 1, count).toTensor();
  if (self.dim() == 2 && mat2.dim() == 2) {
    TORCH_CHECK(self.size(0) > 16, "self.size(0) needs to be greater than 16, but got ",
                self.size(0));
    const auto check_multiple = [](const char* size, std::int64_t value) {
      TORCH_CHECK(value > 0 && value % 8 == 0, size,
                  " needs to be greater than 0 and a multiple of 8, but got ", value);
    };
    check_multiple("self.size(1)", self.size(1));
    TORCH_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ",
                self.size(1), " and ", mat2.size(0));
    check_multiple("mat2.size(1)", mat2.size(1));
  }
  fallback(op, stack);
}

/// Gaussian elimination without exchanges of rows, column by column.
at::Tensor eliminated(const at::Tensor& matrix) {
  auto lu = matrix.clone(at::MemoryFormat::Contiguous);
  const auto steps = std::min(lu.size(-2), lu.size(-1));
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto below = lu.slice(-2, i + 1).slice(-1, i, i + 1);
    below.div_(lu.slice(-2, i, i + 1).slice(-1, i, i + 1));
    lu.slice(-2, i + 1).slice(-1, i + 1).sub_(below.mul(lu.slice(-2, i, i + 1).slice(-1, i + 1)));
  }
  return lu;
}

/// The results in place of the arguments, or in those that the operator has for them.
void replace_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                       std::vector<at::Tensor> results) {
  const auto count = op.schema().arguments().size();
  if (op.schema().overload_name() == "out") {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto out = torch::jit::peek(*stack, count - results.size() + i, count).toTensor();
      results[i] = out.resize_(results[i].sizes()).copy_(results[i]);
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& result : results) stack->emplace_back(std::move(result));
}

bool exchanges_rows(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  return torch::jit::peek(*stack, 1, op.schema().arguments().size()).toBool();
}

/// linalg_lu_factor_ex(A, pivot, check_errors): the factors in one matrix, the exchanges, which are
/// none, and where a pivot is zero.
void lu_factor(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (exchanges_rows(op, stack)) return fallback(op, stack);
  const auto count = op.schema().arguments().size();
  const auto matrix = torch::jit::peek(*stack, 0, count).toTensor();
  const bool checks = torch::jit::peek(*stack, 2, count).toBool();
  const auto lu = eliminated(matrix);
  auto sizes = matrix.sizes().vec();
  sizes.pop_back();
  sizes.back() = std::min(matrix.size(-2), matrix.size(-1));
  const auto options = matrix.options().dtype(at::kInt);
  const auto pivots = at::arange(1, sizes.back() + 1, options).expand(sizes).contiguous();
  const auto zeros = lu.diagonal(0, -2, -1).eq(0);
  sizes.pop_back();
  const auto info = zeros.size(-1) == 0
                        ? at::zeros(sizes, options)
                        : zeros.to(at::kInt).argmax(-1).add(1).mul(zeros.any(-1)).to(at::kInt);
  TORCH_CHECK_LINALG(!checks || !info.any().item<bool>(),
                     "torch.linalg.lu_factor_ex: a diagonal element of U is zero");
  replace_arguments(op, stack, {lu, pivots, info});
}

/// linalg_lu(A, pivot): no permutation, L and U.
void linalg_lu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (exchanges_rows(op, stack)) return fallback(op, stack);
  const auto matrix = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  const auto factors = eliminated(matrix);
  const auto rank = std::min(matrix.size(-2), matrix.size(-1));
  const auto lower =
      factors.slice(-1, 0, rank).tril(-1).add(at::eye(matrix.size(-2), rank, matrix.options()));
  replace_arguments(op, stack,
                    {at::empty({0}, matrix.options()), lower, factors.slice(-2, 0, rank).triu()});
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  impl_boxed<&int_mm>(m, "_int_mm _int_mm.out");
  impl_boxed<&linalg_svd>(m, "_linalg_svd _linalg_svd.U");
  impl_boxed<&lu_factor>(m, "linalg_lu_factor_ex linalg_lu_factor_ex.out");
  impl_boxed<&linalg_lu>(m, "linalg_lu linalg_lu.out");
}

}  // namespace openreg::ops
