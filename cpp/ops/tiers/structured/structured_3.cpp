// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/linalg_ldl_factor_ex_cpu_dispatch.h>
#include <ATen/ops/linalg_ldl_factor_ex_meta.h>
#include <ATen/ops/linalg_ldl_factor_ex_ops.h>
#include <ATen/ops/linalg_ldl_solve_cpu_dispatch.h>
#include <ATen/ops/linalg_ldl_solve_meta.h>
#include <ATen/ops/linalg_ldl_solve_ops.h>
#include <ATen/ops/linalg_lu_cpu_dispatch.h>
#include <ATen/ops/linalg_lu_factor_ex_cpu_dispatch.h>
#include <ATen/ops/linalg_lu_factor_ex_meta.h>
#include <ATen/ops/linalg_lu_factor_ex_ops.h>
#include <ATen/ops/linalg_lu_meta.h>
#include <ATen/ops/linalg_lu_ops.h>
#include <ATen/ops/linalg_lu_solve_cpu_dispatch.h>
#include <ATen/ops/linalg_lu_solve_meta.h>
#include <ATen/ops/linalg_lu_solve_ops.h>
#include <ATen/ops/linalg_qr_cpu_dispatch.h>
#include <ATen/ops/linalg_qr_meta.h>
#include <ATen/ops/linalg_qr_ops.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/log10_cpu_dispatch.h>
#include <ATen/ops/log10_meta.h>
#include <ATen/ops/log10_native.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_cpu_dispatch.h>
#include <ATen/ops/log1p_meta.h>
#include <ATen/ops/log1p_native.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_cpu_dispatch.h>
#include <ATen/ops/log2_meta.h>
#include <ATen/ops/log2_native.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/log_native.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logaddexp2_cpu_dispatch.h>
#include <ATen/ops/logaddexp2_meta.h>
#include <ATen/ops/logaddexp2_native.h>
#include <ATen/ops/logaddexp2_ops.h>
#include <ATen/ops/logaddexp_cpu_dispatch.h>
#include <ATen/ops/logaddexp_meta.h>
#include <ATen/ops/logaddexp_native.h>
#include <ATen/ops/logaddexp_ops.h>
#include <ATen/ops/logit_backward_cpu_dispatch.h>
#include <ATen/ops/logit_backward_meta.h>
#include <ATen/ops/logit_backward_native.h>
#include <ATen/ops/logit_backward_ops.h>
#include <ATen/ops/lt_cpu_dispatch.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/lt_native.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/lu_unpack_cpu_dispatch.h>
#include <ATen/ops/lu_unpack_meta.h>
#include <ATen/ops/lu_unpack_ops.h>
#include <ATen/ops/max_cpu_dispatch.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/maximum_native.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_cpu_dispatch.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_cpu_dispatch.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/minimum_cpu_dispatch.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/minimum_native.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mish_cpu_dispatch.h>
#include <ATen/ops/mish_meta.h>
#include <ATen/ops/mish_native.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mse_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_meta.h>
#include <ATen/ops/mse_loss_native.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_cpu_dispatch.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/ne_native.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/neg_native.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nextafter_cpu_dispatch.h>
#include <ATen/ops/nextafter_meta.h>
#include <ATen/ops/nextafter_native.h>
#include <ATen/ops/nextafter_ops.h>
#include <ATen/ops/nll_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/norm_cpu_dispatch.h>
#include <ATen/ops/norm_meta.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/polygamma_cpu_dispatch.h>
#include <ATen/ops/polygamma_meta.h>
#include <ATen/ops/polygamma_native.h>
#include <ATen/ops/polygamma_ops.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/reciprocal_cpu_dispatch.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/reciprocal_native.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/reflection_pad1d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/remainder_cpu_dispatch.h>
#include <ATen/ops/remainder_meta.h>
#include <ATen/ops/remainder_native.h>
#include <ATen/ops/remainder_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<STRUCTURED(linalg_ldl_factor_ex, linalg_ldl_factor_ex, linalg_ldl_factor_ex_out, linalg_ldl_factor_ex_outf)>(m);
  register_structured<STRUCTURED(linalg_ldl_solve, linalg_ldl_solve, linalg_ldl_solve_out, linalg_ldl_solve_outf)>(m);
  register_structured<STRUCTURED(linalg_lu, linalg_lu, linalg_lu_out, linalg_lu_outf)>(m);
  register_structured<STRUCTURED(linalg_lu_factor_ex, linalg_lu_factor_ex, linalg_lu_factor_ex_out, linalg_lu_factor_ex_outf)>(m);
  register_structured<STRUCTURED(linalg_lu_solve, linalg_lu_solve, linalg_lu_solve_out, linalg_lu_solve_outf)>(m);
  register_structured<STRUCTURED(linalg_qr, linalg_qr, linalg_qr_out, linalg_qr_outf)>(m);
  register_structured<STRUCTURED(linalg_vector_norm, linalg_vector_norm, linalg_vector_norm_out, linalg_vector_norm_outf)>(m);
  register_structured<ITERATED(log, log_out, log, log_out, log_outf), at::_ops::log_>(m);
  register_structured<ITERATED(log10, log10_out, log10, log10_out, log10_outf), at::_ops::log10_>(m);
  register_structured<ITERATED(log1p, log1p_out, log1p, log1p_out, log1p_outf), at::_ops::log1p_>(m);
  register_structured<ITERATED(log2, log2_out, log2, log2_out, log2_outf), at::_ops::log2_>(m);
  register_structured<ITERATED(logaddexp, logaddexp_out, logaddexp, logaddexp_out, logaddexp_outf)>(m);
  register_structured<ITERATED(logaddexp2, logaddexp2_out, logaddexp2, logaddexp2_out, logaddexp2_outf)>(m);
  register_structured<ITERATED(logit_backward, logit_backward_out, logit_backward, logit_backward_grad_input, logit_backward_outf)>(m);
  register_structured<ITERATED(lt_Scalar, lt_Scalar_out, lt_Scalar, lt_Scalar_out, lt_outf), at::_ops::lt__Scalar>(m);
  register_structured<ITERATED(lt_Tensor, lt_Tensor_out, lt_Tensor, lt_Tensor_out, lt_outf), at::_ops::lt__Tensor>(m);
  register_structured<STRUCTURED(lu_unpack, lu_unpack, lu_unpack_out, lu_unpack_outf)>(m);
  register_structured<STRUCTURED(max_dim, max_dim, max_dim_max, max_outf)>(m);
  register_structured<STRUCTURED(max_pool2d_with_indices, max_pool2d_with_indices, max_pool2d_with_indices_out, max_pool2d_with_indices_outf)>(m);
  register_structured<STRUCTURED(max_pool2d_with_indices_backward, max_pool2d_with_indices_backward, max_pool2d_with_indices_backward_grad_input, max_pool2d_with_indices_backward_outf)>(m);
  register_structured<ITERATED(maximum, maximum_out, maximum, maximum_out, maximum_outf)>(m);
  register_structured<STRUCTURED(mean_dim, mean_dim, mean_out, mean_outf)>(m);
  register_structured<STRUCTURED(min_dim, min_dim, min_dim_min, min_outf)>(m);
  register_structured<ITERATED(minimum, minimum_out, minimum, minimum_out, minimum_outf)>(m);
  register_structured<ITERATED(mish, mish_out, mish, mish_out, mish_outf), at::_ops::mish_>(m);
  register_structured<STRUCTURED(mm, mm, mm_out, mm_outf)>(m);
  register_structured<ITERATED(mse_loss, mse_loss_out, mse_loss, mse_loss_out, mse_loss_outf)>(m);
  register_structured<ITERATED(mul_Tensor, mul_out, mul_Tensor, mul_out, mul_outf), at::_ops::mul__Tensor>(m);
  register_structured<ITERATED(ne_Scalar, ne_Scalar_out, ne_Scalar, ne_Scalar_out, ne_outf), at::_ops::ne__Scalar>(m);
  register_structured<ITERATED(ne_Tensor, ne_Tensor_out, ne_Tensor, ne_Tensor_out, ne_outf), at::_ops::ne__Tensor>(m);
  register_structured<ITERATED(neg, neg_out, neg, neg_out, neg_outf), at::_ops::neg_>(m);
  register_structured<ITERATED(nextafter, nextafter_out, nextafter, nextafter_out, nextafter_outf), at::_ops::nextafter_>(m);
  register_structured<STRUCTURED(nll_loss_backward, nll_loss_backward, nll_loss_backward_grad_input, nll_loss_backward_outf)>(m);
  register_structured<STRUCTURED(nll_loss_forward, nll_loss_forward, nll_loss_forward_output, nll_loss_forward_outf)>(m);
  register_structured<STRUCTURED(norm_ScalarOpt_dim, norm_ScalarOpt_dim, norm_out, norm_outf)>(m);
  register_structured<STRUCTURED(norm_ScalarOpt_dim_dtype, norm_ScalarOpt_dim_dtype, norm_dtype_out, norm_outf)>(m);
  register_structured<ITERATED(polygamma, polygamma_out, polygamma, polygamma_out, polygamma_outf)>(m);
  register_structured<STRUCTURED(pow_Scalar, pow_Scalar, pow_Scalar_out, pow_outf)>(m);
  register_structured<ITERATED(pow_Tensor_Scalar, pow_Tensor_Scalar_out, pow_Tensor_Scalar, pow_Tensor_Scalar_out, pow_outf), at::_ops::pow__Scalar>(m);
  register_structured<ITERATED(pow_Tensor_Tensor, pow_Tensor_Tensor_out, pow_Tensor_Tensor, pow_Tensor_Tensor_out, pow_outf), at::_ops::pow__Tensor>(m);
  register_structured<STRUCTURED(prod_dim_int, prod_dim_int, prod_int_out, prod_outf)>(m);
  register_structured<ITERATED(reciprocal, reciprocal_out, reciprocal, reciprocal_out, reciprocal_outf), at::_ops::reciprocal_>(m);
  register_structured<STRUCTURED(reflection_pad1d, reflection_pad1d, reflection_pad1d_out, reflection_pad1d_outf)>(m);
  register_structured<STRUCTURED(reflection_pad1d_backward, reflection_pad1d_backward, reflection_pad1d_backward_grad_input, reflection_pad1d_backward_outf)>(m);
  register_structured<ITERATED(remainder_Tensor, remainder_out, remainder_Tensor, remainder_Tensor_out, remainder_outf), at::_ops::remainder__Tensor>(m);
}

}  // namespace openreg::ops
