// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/renorm_cpu_dispatch.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/replication_pad1d_backward_cpu_dispatch.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_cpu_dispatch.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/round_cpu_dispatch.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/round_native.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_cpu_dispatch.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/rsqrt_native.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_cpu_dispatch.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_cpu_dispatch.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/sgn_cpu_dispatch.h>
#include <ATen/ops/sgn_meta.h>
#include <ATen/ops/sgn_native.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_backward_native.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sigmoid_native.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sign_cpu_dispatch.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/sign_native.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/signbit_cpu_dispatch.h>
#include <ATen/ops/signbit_meta.h>
#include <ATen/ops/signbit_native.h>
#include <ATen/ops/signbit_ops.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_backward_meta.h>
#include <ATen/ops/silu_backward_native.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/silu_native.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sin_native.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinc_cpu_dispatch.h>
#include <ATen/ops/sinc_meta.h>
#include <ATen/ops/sinc_native.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/sinh_cpu_dispatch.h>
#include <ATen/ops/sinh_meta.h>
#include <ATen/ops/sinh_native.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/slow_conv_transpose2d_cpu_dispatch.h>
#include <ATen/ops/slow_conv_transpose2d_meta.h>
#include <ATen/ops/slow_conv_transpose2d_ops.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta.h>
#include <ATen/ops/smooth_l1_loss_native.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/softplus_backward_cpu_dispatch.h>
#include <ATen/ops/softplus_backward_meta.h>
#include <ATen/ops/softplus_backward_native.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_cpu_dispatch.h>
#include <ATen/ops/softplus_meta.h>
#include <ATen/ops/softplus_native.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/softshrink_backward_cpu_dispatch.h>
#include <ATen/ops/softshrink_backward_meta.h>
#include <ATen/ops/softshrink_backward_native.h>
#include <ATen/ops/softshrink_backward_ops.h>
#include <ATen/ops/softshrink_cpu_dispatch.h>
#include <ATen/ops/softshrink_meta.h>
#include <ATen/ops/softshrink_native.h>
#include <ATen/ops/softshrink_ops.h>
#include <ATen/ops/sort_cpu_dispatch.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/special_airy_ai_cpu_dispatch.h>
#include <ATen/ops/special_airy_ai_meta.h>
#include <ATen/ops/special_airy_ai_native.h>
#include <ATen/ops/special_airy_ai_ops.h>
#include <ATen/ops/special_bessel_j0_cpu_dispatch.h>
#include <ATen/ops/special_bessel_j0_meta.h>
#include <ATen/ops/special_bessel_j0_native.h>
#include <ATen/ops/special_bessel_j0_ops.h>
#include <ATen/ops/special_bessel_j1_cpu_dispatch.h>
#include <ATen/ops/special_bessel_j1_meta.h>
#include <ATen/ops/special_bessel_j1_native.h>
#include <ATen/ops/special_bessel_j1_ops.h>
#include <ATen/ops/special_bessel_y0_cpu_dispatch.h>
#include <ATen/ops/special_bessel_y0_meta.h>
#include <ATen/ops/special_bessel_y0_native.h>
#include <ATen/ops/special_bessel_y0_ops.h>
#include <ATen/ops/special_bessel_y1_cpu_dispatch.h>
#include <ATen/ops/special_bessel_y1_meta.h>
#include <ATen/ops/special_bessel_y1_native.h>
#include <ATen/ops/special_bessel_y1_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_t_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_t_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_t_native.h>
#include <ATen/ops/special_chebyshev_polynomial_t_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_u_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_u_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_u_native.h>
#include <ATen/ops/special_chebyshev_polynomial_u_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_v_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_v_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_v_native.h>
#include <ATen/ops/special_chebyshev_polynomial_v_ops.h>
#include <ATen/ops/special_chebyshev_polynomial_w_cpu_dispatch.h>
#include <ATen/ops/special_chebyshev_polynomial_w_meta.h>
#include <ATen/ops/special_chebyshev_polynomial_w_native.h>
#include <ATen/ops/special_chebyshev_polynomial_w_ops.h>
#include <ATen/ops/special_entr_cpu_dispatch.h>
#include <ATen/ops/special_entr_meta.h>
#include <ATen/ops/special_entr_native.h>
#include <ATen/ops/special_entr_ops.h>
#include <ATen/ops/special_erfcx_cpu_dispatch.h>
#include <ATen/ops/special_erfcx_meta.h>
#include <ATen/ops/special_erfcx_native.h>
#include <ATen/ops/special_erfcx_ops.h>
#include <ATen/ops/special_hermite_polynomial_h_cpu_dispatch.h>
#include <ATen/ops/special_hermite_polynomial_h_meta.h>
#include <ATen/ops/special_hermite_polynomial_h_native.h>
#include <ATen/ops/special_hermite_polynomial_h_ops.h>
#include <ATen/ops/special_hermite_polynomial_he_cpu_dispatch.h>
#include <ATen/ops/special_hermite_polynomial_he_meta.h>
#include <ATen/ops/special_hermite_polynomial_he_native.h>
#include <ATen/ops/special_hermite_polynomial_he_ops.h>
#include <ATen/ops/special_i0e_cpu_dispatch.h>
#include <ATen/ops/special_i0e_meta.h>
#include <ATen/ops/special_i0e_native.h>
#include <ATen/ops/special_i0e_ops.h>
#include <ATen/ops/special_i1_cpu_dispatch.h>
#include <ATen/ops/special_i1_meta.h>
#include <ATen/ops/special_i1_native.h>
#include <ATen/ops/special_i1_ops.h>
#include <ATen/ops/special_i1e_cpu_dispatch.h>
#include <ATen/ops/special_i1e_meta.h>
#include <ATen/ops/special_i1e_native.h>
#include <ATen/ops/special_i1e_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<STRUCTURED(renorm, renorm, renorm_out, renorm_outf), at::_ops::renorm_>(m);
  register_structured<STRUCTURED(replication_pad1d, replication_pad1d, replication_pad1d_out, replication_pad1d_outf)>(m);
  register_structured<STRUCTURED(replication_pad1d_backward, replication_pad1d_backward, replication_pad1d_backward_grad_input, replication_pad1d_backward_outf)>(m);
  register_structured<ITERATED(round, round_out, round, round_out, round_outf), at::_ops::round_>(m);
  register_structured<ITERATED(round_decimals, round_decimals_out, round_decimals, round_decimals_out, round_outf), at::_ops::round__decimals>(m);
  register_structured<ITERATED(rsqrt, rsqrt_out, rsqrt, rsqrt_out, rsqrt_outf), at::_ops::rsqrt_>(m);
  register_structured<STRUCTURED(scatter_reduce, scatter_reduce, scatter_reduce_out, scatter_outf), at::_ops::scatter__reduce>(m);
  register_structured<STRUCTURED(scatter_src, scatter_src, scatter_src_out, scatter_outf), at::_ops::scatter__src>(m);
  register_structured<STRUCTURED(scatter_value, scatter_value, scatter_value_out, scatter_outf), at::_ops::scatter__value>(m);
  register_structured<STRUCTURED(scatter_value_reduce, scatter_value_reduce, scatter_value_reduce_out, scatter_outf), at::_ops::scatter__value_reduce>(m);
  register_structured<STRUCTURED(scatter_add, scatter_add, scatter_add_out, scatter_add_outf), at::_ops::scatter_add_>(m);
  register_structured<STRUCTURED(scatter_reduce_two, scatter_reduce_two, scatter_reduce_two_out, scatter_reduce_outf), at::_ops::scatter_reduce__two>(m);
  register_structured<ITERATED(sgn, sgn_out, sgn, sgn_out, sgn_outf), at::_ops::sgn_>(m);
  register_structured<ITERATED(sigmoid, sigmoid_out, sigmoid, sigmoid_out, sigmoid_outf), at::_ops::sigmoid_>(m);
  register_structured<ITERATED(sigmoid_backward, sigmoid_backward_out, sigmoid_backward, sigmoid_backward_grad_input, sigmoid_backward_outf)>(m);
  register_structured<ITERATED(sign, sign_out, sign, sign_out, sign_outf), at::_ops::sign_>(m);
  register_structured<ITERATED(signbit, signbit_out, signbit, signbit_out, signbit_outf)>(m);
  register_structured<ITERATED(silu, silu_out, silu, silu_out, silu_outf), at::_ops::silu_>(m);
  register_structured<ITERATED(silu_backward, silu_backward_out, silu_backward, silu_backward_grad_input, silu_backward_outf)>(m);
  register_structured<ITERATED(sin, sin_out, sin, sin_out, sin_outf), at::_ops::sin_>(m);
  register_structured<ITERATED(sinc, sinc_out, sinc, sinc_out, sinc_outf), at::_ops::sinc_>(m);
  register_structured<ITERATED(sinh, sinh_out, sinh, sinh_out, sinh_outf), at::_ops::sinh_>(m);
  register_structured<STRUCTURED(slow_conv_transpose2d, slow_conv_transpose2d, slow_conv_transpose2d_out, slow_conv_transpose2d_outf)>(m);
  register_structured<ITERATED(smooth_l1_loss, smooth_l1_loss_out, smooth_l1_loss, smooth_l1_loss_out, smooth_l1_loss_outf)>(m);
  register_structured<ITERATED(softplus, softplus_out, softplus, softplus_out, softplus_outf)>(m);
  register_structured<ITERATED(softplus_backward, softplus_backward_out, softplus_backward, softplus_backward_grad_input, softplus_backward_outf)>(m);
  register_structured<ITERATED(softshrink, softshrink_out, softshrink, softshrink_out, softshrink_outf)>(m);
  register_structured<ITERATED(softshrink_backward, softshrink_backward_out, softshrink_backward, softshrink_backward_grad_input, softshrink_backward_outf)>(m);
  register_structured<STRUCTURED(sort_stable, sort_stable, sort_values_stable, sort_outf)>(m);
  register_structured<ITERATED(special_airy_ai, special_airy_ai_out, special_airy_ai, special_airy_ai_out, special_airy_ai_outf)>(m);
  register_structured<ITERATED(special_bessel_j0, special_bessel_j0_out, special_bessel_j0, special_bessel_j0_out, special_bessel_j0_outf)>(m);
  register_structured<ITERATED(special_bessel_j1, special_bessel_j1_out, special_bessel_j1, special_bessel_j1_out, special_bessel_j1_outf)>(m);
  register_structured<ITERATED(special_bessel_y0, special_bessel_y0_out, special_bessel_y0, special_bessel_y0_out, special_bessel_y0_outf)>(m);
  register_structured<ITERATED(special_bessel_y1, special_bessel_y1_out, special_bessel_y1, special_bessel_y1_out, special_bessel_y1_outf)>(m);
  register_structured<ITERATED(special_chebyshev_polynomial_t, special_chebyshev_polynomial_t_out, special_chebyshev_polynomial_t, special_chebyshev_polynomial_t_out, special_chebyshev_polynomial_t_outf)>(m);
  register_structured<ITERATED(special_chebyshev_polynomial_u, special_chebyshev_polynomial_u_out, special_chebyshev_polynomial_u, special_chebyshev_polynomial_u_out, special_chebyshev_polynomial_u_outf)>(m);
  register_structured<ITERATED(special_chebyshev_polynomial_v, special_chebyshev_polynomial_v_out, special_chebyshev_polynomial_v, special_chebyshev_polynomial_v_out, special_chebyshev_polynomial_v_outf)>(m);
  register_structured<ITERATED(special_chebyshev_polynomial_w, special_chebyshev_polynomial_w_out, special_chebyshev_polynomial_w, special_chebyshev_polynomial_w_out, special_chebyshev_polynomial_w_outf)>(m);
  register_structured<ITERATED(special_entr, special_entr_out, special_entr, special_entr_out, special_entr_outf)>(m);
  register_structured<ITERATED(special_erfcx, special_erfcx_out, special_erfcx, special_erfcx_out, special_erfcx_outf)>(m);
  register_structured<ITERATED(special_hermite_polynomial_h, special_hermite_polynomial_h_out, special_hermite_polynomial_h, special_hermite_polynomial_h_out, special_hermite_polynomial_h_outf)>(m);
  register_structured<ITERATED(special_hermite_polynomial_he, special_hermite_polynomial_he_out, special_hermite_polynomial_he, special_hermite_polynomial_he_out, special_hermite_polynomial_he_outf)>(m);
  register_structured<ITERATED(special_i0e, special_i0e_out, special_i0e, special_i0e_out, special_i0e_outf)>(m);
  register_structured<ITERATED(special_i1, special_i1_out, special_i1, special_i1_out, special_i1_outf)>(m);
  register_structured<ITERATED(special_i1e, special_i1e_out, special_i1e, special_i1e_out, special_i1e_outf)>(m);
}

}  // namespace openreg::ops
