#pragma once

namespace openreg::ops {

/// Operators on sparse COO tensors whose kernels are in sparse_dtypes.cpp.
inline constexpr const char* kSparseOperators =
    "_coalesce _sparse_sparse_matmul mm mm.out add.Tensor add.out add_.Tensor mul.Tensor mul.out "
    "mul_.Tensor sub.Tensor sub.out sub_.Tensor";
/// Operators on tensors with compressed rows or blocks whose kernels are in sparse_dtypes.cpp.
inline constexpr const char* kSparseCsrOperators =
    "addmm addmm.out addmm_ addmv.out mm mm.out mul.Tensor mul.out mul_.Tensor "
    "sparse_sampled_addmm sparse_sampled_addmm.out triangular_solve.X";

}  // namespace openreg::ops
