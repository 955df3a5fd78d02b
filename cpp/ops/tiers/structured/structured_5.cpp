// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/special_laguerre_polynomial_l_cpu_dispatch.h>
#include <ATen/ops/special_laguerre_polynomial_l_meta.h>
#include <ATen/ops/special_laguerre_polynomial_l_native.h>
#include <ATen/ops/special_laguerre_polynomial_l_ops.h>
#include <ATen/ops/special_legendre_polynomial_p_cpu_dispatch.h>
#include <ATen/ops/special_legendre_polynomial_p_meta.h>
#include <ATen/ops/special_legendre_polynomial_p_native.h>
#include <ATen/ops/special_legendre_polynomial_p_ops.h>
#include <ATen/ops/special_log_ndtr_cpu_dispatch.h>
#include <ATen/ops/special_log_ndtr_meta.h>
#include <ATen/ops/special_log_ndtr_native.h>
#include <ATen/ops/special_log_ndtr_ops.h>
#include <ATen/ops/special_modified_bessel_i0_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_i0_meta.h>
#include <ATen/ops/special_modified_bessel_i0_native.h>
#include <ATen/ops/special_modified_bessel_i0_ops.h>
#include <ATen/ops/special_modified_bessel_i1_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_i1_meta.h>
#include <ATen/ops/special_modified_bessel_i1_native.h>
#include <ATen/ops/special_modified_bessel_i1_ops.h>
#include <ATen/ops/special_modified_bessel_k0_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_k0_meta.h>
#include <ATen/ops/special_modified_bessel_k0_native.h>
#include <ATen/ops/special_modified_bessel_k0_ops.h>
#include <ATen/ops/special_modified_bessel_k1_cpu_dispatch.h>
#include <ATen/ops/special_modified_bessel_k1_meta.h>
#include <ATen/ops/special_modified_bessel_k1_native.h>
#include <ATen/ops/special_modified_bessel_k1_ops.h>
#include <ATen/ops/special_ndtri_cpu_dispatch.h>
#include <ATen/ops/special_ndtri_meta.h>
#include <ATen/ops/special_ndtri_native.h>
#include <ATen/ops/special_ndtri_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_cpu_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_native.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_ops.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_cpu_dispatch.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_native.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_cpu_dispatch.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_spherical_bessel_j0_cpu_dispatch.h>
#include <ATen/ops/special_spherical_bessel_j0_meta.h>
#include <ATen/ops/special_spherical_bessel_j0_native.h>
#include <ATen/ops/special_spherical_bessel_j0_ops.h>
#include <ATen/ops/special_xlog1py_cpu_dispatch.h>
#include <ATen/ops/special_xlog1py_meta.h>
#include <ATen/ops/special_xlog1py_native.h>
#include <ATen/ops/special_xlog1py_ops.h>
#include <ATen/ops/special_zeta_cpu_dispatch.h>
#include <ATen/ops/special_zeta_meta.h>
#include <ATen/ops/special_zeta_native.h>
#include <ATen/ops/special_zeta_ops.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sqrt_native.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tan_cpu_dispatch.h>
#include <ATen/ops/tan_meta.h>
#include <ATen/ops/tan_native.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_backward_native.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/tanh_native.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_native.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/threshold_cpu_dispatch.h>
#include <ATen/ops/threshold_meta.h>
#include <ATen/ops/threshold_native.h>
#include <ATen/ops/threshold_ops.h>
#include <ATen/ops/topk_cpu_dispatch.h>
#include <ATen/ops/topk_meta.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/triangular_solve_cpu_dispatch.h>
#include <ATen/ops/triangular_solve_meta.h>
#include <ATen/ops/triangular_solve_ops.h>
#include <ATen/ops/tril_cpu_dispatch.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_cpu_dispatch.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/triu_ops.h>
#include <ATen/ops/trunc_cpu_dispatch.h>
#include <ATen/ops/trunc_meta.h>
#include <ATen/ops/trunc_native.h>
#include <ATen/ops/trunc_ops.h>
#include <ATen/ops/upsample_bicubic2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_ops.h>
#include <ATen/ops/upsample_bicubic2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_backward_ops.h>
#include <ATen/ops/upsample_linear1d_cpu_dispatch.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_ops.h>
#include <ATen/ops/upsample_nearest1d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_ops.h>
#include <ATen/ops/upsample_nearest3d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_ops.h>
#include <ATen/ops/upsample_trilinear3d_cpu_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>
#include <ATen/ops/xlogy_cpu_dispatch.h>
#include <ATen/ops/xlogy_meta.h>
#include <ATen/ops/xlogy_native.h>
#include <ATen/ops/xlogy_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<ITERATED(special_laguerre_polynomial_l, special_laguerre_polynomial_l_out, special_laguerre_polynomial_l, special_laguerre_polynomial_l_out, special_laguerre_polynomial_l_outf)>(m);
  register_structured<ITERATED(special_legendre_polynomial_p, special_legendre_polynomial_p_out, special_legendre_polynomial_p, special_legendre_polynomial_p_out, special_legendre_polynomial_p_outf)>(m);
  register_structured<ITERATED(special_log_ndtr, special_log_ndtr_out, special_log_ndtr, special_log_ndtr_out, special_log_ndtr_outf)>(m);
  register_structured<ITERATED(special_modified_bessel_i0, special_modified_bessel_i0_out, special_modified_bessel_i0, special_modified_bessel_i0_out, special_modified_bessel_i0_outf)>(m);
  register_structured<ITERATED(special_modified_bessel_i1, special_modified_bessel_i1_out, special_modified_bessel_i1, special_modified_bessel_i1_out, special_modified_bessel_i1_outf)>(m);
  register_structured<ITERATED(special_modified_bessel_k0, special_modified_bessel_k0_out, special_modified_bessel_k0, special_modified_bessel_k0_out, special_modified_bessel_k0_outf)>(m);
  register_structured<ITERATED(special_modified_bessel_k1, special_modified_bessel_k1_out, special_modified_bessel_k1, special_modified_bessel_k1_out, special_modified_bessel_k1_outf)>(m);
  register_structured<ITERATED(special_ndtri, special_ndtri_out, special_ndtri, special_ndtri_out, special_ndtri_outf)>(m);
  register_structured<ITERATED(special_scaled_modified_bessel_k0, special_scaled_modified_bessel_k0_out, special_scaled_modified_bessel_k0, special_scaled_modified_bessel_k0_out, special_scaled_modified_bessel_k0_outf)>(m);
  register_structured<ITERATED(special_scaled_modified_bessel_k1, special_scaled_modified_bessel_k1_out, special_scaled_modified_bessel_k1, special_scaled_modified_bessel_k1_out, special_scaled_modified_bessel_k1_outf)>(m);
  register_structured<ITERATED(special_shifted_chebyshev_polynomial_t, special_shifted_chebyshev_polynomial_t_out, special_shifted_chebyshev_polynomial_t, special_shifted_chebyshev_polynomial_t_out, special_shifted_chebyshev_polynomial_t_outf)>(m);
  register_structured<ITERATED(special_shifted_chebyshev_polynomial_u, special_shifted_chebyshev_polynomial_u_out, special_shifted_chebyshev_polynomial_u, special_shifted_chebyshev_polynomial_u_out, special_shifted_chebyshev_polynomial_u_outf)>(m);
  register_structured<ITERATED(special_shifted_chebyshev_polynomial_v, special_shifted_chebyshev_polynomial_v_out, special_shifted_chebyshev_polynomial_v, special_shifted_chebyshev_polynomial_v_out, special_shifted_chebyshev_polynomial_v_outf)>(m);
  register_structured<ITERATED(special_shifted_chebyshev_polynomial_w, special_shifted_chebyshev_polynomial_w_out, special_shifted_chebyshev_polynomial_w, special_shifted_chebyshev_polynomial_w_out, special_shifted_chebyshev_polynomial_w_outf)>(m);
  register_structured<ITERATED(special_spherical_bessel_j0, special_spherical_bessel_j0_out, special_spherical_bessel_j0, special_spherical_bessel_j0_out, special_spherical_bessel_j0_outf)>(m);
  register_structured<ITERATED(special_xlog1py, special_xlog1py_out, special_xlog1py, special_xlog1py_out, special_xlog1py_outf)>(m);
  register_structured<ITERATED(special_zeta, special_zeta_out, special_zeta, special_zeta_out, special_zeta_outf)>(m);
  register_structured<ITERATED(sqrt, sqrt_out, sqrt, sqrt_out, sqrt_outf), at::_ops::sqrt_>(m);
  register_structured<ITERATED(sub_Tensor, sub_out, sub_Tensor, sub_out, sub_outf), at::_ops::sub__Tensor>(m);
  register_structured<STRUCTURED(sum_dim_IntList, sum_dim_IntList, sum_IntList_out, sum_outf)>(m);
  register_structured<ITERATED(tan, tan_out, tan, tan_out, tan_outf), at::_ops::tan_>(m);
  register_structured<ITERATED(tanh, tanh_out, tanh, tanh_out, tanh_outf), at::_ops::tanh_>(m);
  register_structured<ITERATED(tanh_backward, tanh_backward_out, tanh_backward, tanh_backward_grad_input, tanh_backward_outf)>(m);
  register_structured<ITERATED(threshold, threshold_out, threshold, threshold_out, threshold_outf), at::_ops::threshold_>(m);
  register_structured<ITERATED(threshold_backward, threshold_backward_out, threshold_backward, threshold_backward_grad_input, threshold_backward_outf)>(m);
  register_structured<STRUCTURED(topk, topk, topk_values, topk_outf)>(m);
  register_structured<STRUCTURED(triangular_solve, triangular_solve, triangular_solve_X, triangular_solve_outf)>(m);
  register_structured<STRUCTURED(tril, tril, tril_out, tril_outf), at::_ops::tril_>(m);
  register_structured<STRUCTURED(triu, triu, triu_out, triu_outf), at::_ops::triu_>(m);
  register_structured<ITERATED(trunc, trunc_out, trunc, trunc_out, trunc_outf), at::_ops::trunc_>(m);
  register_structured<STRUCTURED(upsample_bicubic2d, upsample_bicubic2d, upsample_bicubic2d_out, upsample_bicubic2d_outf)>(m);
  register_structured<STRUCTURED(upsample_bicubic2d_backward, upsample_bicubic2d_backward, upsample_bicubic2d_backward_grad_input, upsample_bicubic2d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_bilinear2d, upsample_bilinear2d, upsample_bilinear2d_out, upsample_bilinear2d_outf)>(m);
  register_structured<STRUCTURED(upsample_bilinear2d_backward, upsample_bilinear2d_backward, upsample_bilinear2d_backward_grad_input, upsample_bilinear2d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_linear1d, upsample_linear1d, upsample_linear1d_out, upsample_linear1d_outf)>(m);
  register_structured<STRUCTURED(upsample_linear1d_backward, upsample_linear1d_backward, upsample_linear1d_backward_grad_input, upsample_linear1d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest1d, upsample_nearest1d, upsample_nearest1d_out, upsample_nearest1d_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest1d_backward, upsample_nearest1d_backward, upsample_nearest1d_backward_grad_input, upsample_nearest1d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest2d, upsample_nearest2d, upsample_nearest2d_out, upsample_nearest2d_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest2d_backward, upsample_nearest2d_backward, upsample_nearest2d_backward_grad_input, upsample_nearest2d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest3d, upsample_nearest3d, upsample_nearest3d_out, upsample_nearest3d_outf)>(m);
  register_structured<STRUCTURED(upsample_nearest3d_backward, upsample_nearest3d_backward, upsample_nearest3d_backward_grad_input, upsample_nearest3d_backward_outf)>(m);
  register_structured<STRUCTURED(upsample_trilinear3d, upsample_trilinear3d, upsample_trilinear3d_out, upsample_trilinear3d_outf)>(m);
  register_structured<STRUCTURED(upsample_trilinear3d_backward, upsample_trilinear3d_backward, upsample_trilinear3d_backward_grad_input, upsample_trilinear3d_backward_outf)>(m);
  register_structured<ITERATED(xlogy_Tensor, xlogy_out, xlogy_Tensor, xlogy_OutTensor, xlogy_outf), at::_ops::xlogy__Tensor>(m);
}

}  // namespace openreg::ops
