// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/fmax_cpu_dispatch.h>
#include <ATen/ops/fmax_meta.h>
#include <ATen/ops/fmax_native.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_cpu_dispatch.h>
#include <ATen/ops/fmin_meta.h>
#include <ATen/ops/fmin_native.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_cpu_dispatch.h>
#include <ATen/ops/fmod_meta.h>
#include <ATen/ops/fmod_native.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/frac_cpu_dispatch.h>
#include <ATen/ops/frac_meta.h>
#include <ATen/ops/frac_native.h>
#include <ATen/ops/frac_ops.h>
#include <ATen/ops/fractional_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_ops.h>
#include <ATen/ops/fractional_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/fractional_max_pool3d_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool3d_ops.h>
#include <ATen/ops/gather_cpu_dispatch.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/gcd_cpu_dispatch.h>
#include <ATen/ops/gcd_meta.h>
#include <ATen/ops/gcd_native.h>
#include <ATen/ops/gcd_ops.h>
#include <ATen/ops/ge_cpu_dispatch.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/ge_native.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_backward_native.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/gelu_native.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/glu_cpu_dispatch.h>
#include <ATen/ops/glu_meta.h>
#include <ATen/ops/glu_native.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/gt_cpu_dispatch.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/gt_native.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/hardshrink_backward_cpu_dispatch.h>
#include <ATen/ops/hardshrink_backward_meta.h>
#include <ATen/ops/hardshrink_backward_native.h>
#include <ATen/ops/hardshrink_backward_ops.h>
#include <ATen/ops/hardshrink_cpu_dispatch.h>
#include <ATen/ops/hardshrink_meta.h>
#include <ATen/ops/hardshrink_native.h>
#include <ATen/ops/hardshrink_ops.h>
#include <ATen/ops/hardsigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_backward_meta.h>
#include <ATen/ops/hardsigmoid_backward_native.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardsigmoid_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_meta.h>
#include <ATen/ops/hardsigmoid_native.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hash_tensor_cpu_dispatch.h>
#include <ATen/ops/hash_tensor_meta.h>
#include <ATen/ops/hash_tensor_ops.h>
#include <ATen/ops/heaviside_cpu_dispatch.h>
#include <ATen/ops/heaviside_meta.h>
#include <ATen/ops/heaviside_native.h>
#include <ATen/ops/heaviside_ops.h>
#include <ATen/ops/hypot_cpu_dispatch.h>
#include <ATen/ops/hypot_meta.h>
#include <ATen/ops/hypot_native.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/i0_cpu_dispatch.h>
#include <ATen/ops/i0_meta.h>
#include <ATen/ops/i0_native.h>
#include <ATen/ops/i0_ops.h>
#include <ATen/ops/igamma_cpu_dispatch.h>
#include <ATen/ops/igamma_meta.h>
#include <ATen/ops/igamma_native.h>
#include <ATen/ops/igamma_ops.h>
#include <ATen/ops/igammac_cpu_dispatch.h>
#include <ATen/ops/igammac_meta.h>
#include <ATen/ops/igammac_native.h>
#include <ATen/ops/igammac_ops.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_cpu_dispatch.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_reduce_cpu_dispatch.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/index_reduce_ops.h>
#include <ATen/ops/isin_cpu_dispatch.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/isin_ops.h>
#include <ATen/ops/isneginf_cpu_dispatch.h>
#include <ATen/ops/isneginf_meta.h>
#include <ATen/ops/isneginf_native.h>
#include <ATen/ops/isneginf_ops.h>
#include <ATen/ops/isposinf_cpu_dispatch.h>
#include <ATen/ops/isposinf_meta.h>
#include <ATen/ops/isposinf_native.h>
#include <ATen/ops/isposinf_ops.h>
#include <ATen/ops/lcm_cpu_dispatch.h>
#include <ATen/ops/lcm_meta.h>
#include <ATen/ops/lcm_native.h>
#include <ATen/ops/lcm_ops.h>
#include <ATen/ops/le_cpu_dispatch.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/le_native.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/leaky_relu_backward_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_backward_meta.h>
#include <ATen/ops/leaky_relu_backward_native.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_meta.h>
#include <ATen/ops/leaky_relu_native.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/lerp_native.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/lgamma_cpu_dispatch.h>
#include <ATen/ops/lgamma_meta.h>
#include <ATen/ops/lgamma_native.h>
#include <ATen/ops/lgamma_ops.h>
#include <ATen/ops/linalg_cholesky_ex_cpu_dispatch.h>
#include <ATen/ops/linalg_cholesky_ex_meta.h>
#include <ATen/ops/linalg_cholesky_ex_ops.h>
#include <ATen/ops/linalg_cross_cpu_dispatch.h>
#include <ATen/ops/linalg_cross_meta.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_inv_ex_cpu_dispatch.h>
#include <ATen/ops/linalg_inv_ex_meta.h>
#include <ATen/ops/linalg_inv_ex_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<ITERATED(fmax, fmax_out, fmax, fmax_out, fmax_outf)>(m);
  register_structured<ITERATED(fmin, fmin_out, fmin, fmin_out, fmin_outf)>(m);
  register_structured<ITERATED(fmod_Tensor, fmod_out, fmod_Tensor, fmod_Tensor_out, fmod_outf), at::_ops::fmod__Tensor>(m);
  register_structured<ITERATED(frac, frac_out, frac, frac_out, frac_outf), at::_ops::frac_>(m);
  register_structured<STRUCTURED(fractional_max_pool2d, fractional_max_pool2d, fractional_max_pool2d_output, fractional_max_pool2d_outf)>(m);
  register_structured<STRUCTURED(fractional_max_pool2d_backward, fractional_max_pool2d_backward, fractional_max_pool2d_backward_grad_input, fractional_max_pool2d_backward_outf)>(m);
  register_structured<STRUCTURED(fractional_max_pool3d, fractional_max_pool3d, fractional_max_pool3d_output, fractional_max_pool3d_outf)>(m);
  register_structured<STRUCTURED(gather, gather, gather_out, gather_outf)>(m);
  register_structured<ITERATED(gcd, gcd_out, gcd, gcd_out, gcd_outf), at::_ops::gcd_>(m);
  register_structured<ITERATED(ge_Scalar, ge_Scalar_out, ge_Scalar, ge_Scalar_out, ge_outf), at::_ops::ge__Scalar>(m);
  register_structured<ITERATED(ge_Tensor, ge_Tensor_out, ge_Tensor, ge_Tensor_out, ge_outf), at::_ops::ge__Tensor>(m);
  register_structured<ITERATED(gelu, gelu_out_cpu, gelu, gelu_out, gelu_outf), at::_ops::gelu_>(m);
  register_structured<ITERATED(gelu_backward, gelu_backward_out_cpu, gelu_backward, gelu_backward_grad_input, gelu_backward_outf)>(m);
  register_structured<ITERATED(glu, glu_out, glu, glu_out, glu_outf)>(m);
  register_structured<ITERATED(gt_Scalar, gt_Scalar_out, gt_Scalar, gt_Scalar_out, gt_outf), at::_ops::gt__Scalar>(m);
  register_structured<ITERATED(gt_Tensor, gt_Tensor_out, gt_Tensor, gt_Tensor_out, gt_outf), at::_ops::gt__Tensor>(m);
  register_structured<ITERATED(hardshrink, hardshrink_out, hardshrink, hardshrink_out, hardshrink_outf)>(m);
  register_structured<ITERATED(hardshrink_backward, hardshrink_backward_out, hardshrink_backward, hardshrink_backward_grad_input, hardshrink_backward_outf)>(m);
  register_structured<ITERATED(hardsigmoid, hardsigmoid_out, hardsigmoid, hardsigmoid_out, hardsigmoid_outf), at::_ops::hardsigmoid_>(m);
  register_structured<ITERATED(hardsigmoid_backward, hardsigmoid_backward_out, hardsigmoid_backward, hardsigmoid_backward_grad_input, hardsigmoid_backward_outf)>(m);
  register_structured<STRUCTURED(hash_tensor, hash_tensor, hash_tensor_out, hash_tensor_outf)>(m);
  register_structured<ITERATED(heaviside, heaviside_out, heaviside, heaviside_out, heaviside_outf), at::_ops::heaviside_>(m);
  register_structured<ITERATED(hypot, hypot_out, hypot, hypot_out, hypot_outf), at::_ops::hypot_>(m);
  register_structured<ITERATED(i0, i0_out, i0, i0_out, i0_outf), at::_ops::i0_>(m);
  register_structured<ITERATED(igamma, igamma_out, igamma, igamma_out, igamma_outf), at::_ops::igamma_>(m);
  register_structured<ITERATED(igammac, igammac_out, igammac, igammac_out, igammac_outf), at::_ops::igammac_>(m);
  register_structured<STRUCTURED(index_Tensor, index_Tensor, index_Tensor_out, index_outf)>(m);
  register_structured<STRUCTURED(index_add, index_add, index_add_out, index_add_outf), at::_ops::index_add_>(m);
  register_structured<STRUCTURED(index_copy, index_copy, index_copy_out, index_copy_outf), at::_ops::index_copy_>(m);
  register_structured<STRUCTURED(index_reduce, index_reduce, index_reduce_out, index_reduce_outf), at::_ops::index_reduce_>(m);
  register_structured<STRUCTURED(isin_Tensor_Scalar, isin_Tensor_Scalar, isin_Tensor_Scalar_out, isin_outf)>(m);
  register_structured<STRUCTURED(isin_Tensor_Tensor, isin_Tensor_Tensor, isin_Tensor_Tensor_out, isin_outf)>(m);
  register_structured<ITERATED(isneginf, isneginf_out, isneginf, isneginf_out, isneginf_outf)>(m);
  register_structured<ITERATED(isposinf, isposinf_out, isposinf, isposinf_out, isposinf_outf)>(m);
  register_structured<ITERATED(lcm, lcm_out, lcm, lcm_out, lcm_outf), at::_ops::lcm_>(m);
  register_structured<ITERATED(le_Scalar, le_Scalar_out, le_Scalar, le_Scalar_out, le_outf), at::_ops::le__Scalar>(m);
  register_structured<ITERATED(le_Tensor, le_Tensor_out, le_Tensor, le_Tensor_out, le_outf), at::_ops::le__Tensor>(m);
  register_structured<ITERATED(leaky_relu, leaky_relu_out, leaky_relu, leaky_relu_out, leaky_relu_outf), at::_ops::leaky_relu_>(m);
  register_structured<ITERATED(leaky_relu_backward, leaky_relu_backward_out, leaky_relu_backward, leaky_relu_backward_grad_input, leaky_relu_backward_outf)>(m);
  register_structured<ITERATED(lerp_Scalar, lerp_Scalar, lerp_Scalar, lerp_Scalar_out, lerp_outf), at::_ops::lerp__Scalar>(m);
  register_structured<ITERATED(lerp_Tensor, lerp_Tensor, lerp_Tensor, lerp_Tensor_out, lerp_outf), at::_ops::lerp__Tensor>(m);
  register_structured<ITERATED(lgamma, lgamma_out, lgamma, lgamma_out, lgamma_outf), at::_ops::lgamma_>(m);
  register_structured<STRUCTURED(linalg_cholesky_ex, linalg_cholesky_ex, linalg_cholesky_ex_L, linalg_cholesky_ex_outf)>(m);
  register_structured<STRUCTURED(linalg_cross, linalg_cross, linalg_cross_out, linalg_cross_outf)>(m);
  register_structured<STRUCTURED(linalg_inv_ex, linalg_inv_ex, linalg_inv_ex_inverse, linalg_inv_ex_outf)>(m);
}

}  // namespace openreg::ops
