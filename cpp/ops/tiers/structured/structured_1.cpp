// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/argmin_cpu_dispatch.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/asin_native.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_cpu_dispatch.h>
#include <ATen/ops/asinh_meta.h>
#include <ATen/ops/asinh_native.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan2_cpu_dispatch.h>
#include <ATen/ops/atan2_meta.h>
#include <ATen/ops/atan2_native.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/atan_native.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_cpu_dispatch.h>
#include <ATen/ops/atanh_meta.h>
#include <ATen/ops/atanh_native.h>
#include <ATen/ops/atanh_ops.h>
#include <ATen/ops/avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bitwise_and_cpu_dispatch.h>
#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_and_native.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_left_shift_meta.h>
#include <ATen/ops/bitwise_left_shift_native.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_not_cpu_dispatch.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_not_native.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_cpu_dispatch.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_or_native.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_right_shift_meta.h>
#include <ATen/ops/bitwise_right_shift_native.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_cpu_dispatch.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/bitwise_xor_native.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/ceil_cpu_dispatch.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/ceil_native.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_max_native.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_native.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/copysign_cpu_dispatch.h>
#include <ATen/ops/copysign_meta.h>
#include <ATen/ops/copysign_native.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cos_native.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_cpu_dispatch.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/cosh_native.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/cumprod_cpu_dispatch.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/digamma_cpu_dispatch.h>
#include <ATen/ops/digamma_meta.h>
#include <ATen/ops/digamma_native.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_backward_cpu_dispatch.h>
#include <ATen/ops/elu_backward_meta.h>
#include <ATen/ops/elu_backward_native.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_cpu_dispatch.h>
#include <ATen/ops/elu_meta.h>
#include <ATen/ops/elu_native.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_native.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erf_native.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/erfc_native.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/erfinv_meta.h>
#include <ATen/ops/erfinv_native.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_cpu_dispatch.h>
#include <ATen/ops/exp2_meta.h>
#include <ATen/ops/exp2_native.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_cpu_dispatch.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/expm1_native.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_cpu_dispatch.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/floor_native.h>
#include <ATen/ops/floor_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<STRUCTURED(argmin, argmin, argmin_out, argmin_outf)>(m);
  register_structured<ITERATED(asin, asin_out, asin, asin_out, asin_outf), at::_ops::asin_>(m);
  register_structured<ITERATED(asinh, asinh_out, asinh, asinh_out, asinh_outf), at::_ops::asinh_>(m);
  register_structured<ITERATED(atan, atan_out, atan, atan_out, atan_outf), at::_ops::atan_>(m);
  register_structured<ITERATED(atan2, atan2_out, atan2, atan2_out, atan2_outf), at::_ops::atan2_>(m);
  register_structured<ITERATED(atanh, atanh_out, atanh, atanh_out, atanh_outf), at::_ops::atanh_>(m);
  register_structured<STRUCTURED(avg_pool2d, avg_pool2d, avg_pool2d_out, avg_pool2d_outf)>(m);
  register_structured<STRUCTURED(avg_pool2d_backward, avg_pool2d_backward, avg_pool2d_backward_grad_input, avg_pool2d_backward_outf)>(m);
  register_structured<STRUCTURED(avg_pool3d, avg_pool3d, avg_pool3d_out, avg_pool3d_outf)>(m);
  register_structured<STRUCTURED(avg_pool3d_backward, avg_pool3d_backward, avg_pool3d_backward_grad_input, avg_pool3d_backward_outf)>(m);
  register_structured<STRUCTURED(baddbmm, baddbmm, baddbmm_out, baddbmm_outf), at::_ops::baddbmm_>(m);
  register_structured<ITERATED(bitwise_and_Tensor, bitwise_and_out, bitwise_and_Tensor, bitwise_and_Tensor_out, bitwise_and_outf), at::_ops::bitwise_and__Tensor>(m);
  register_structured<ITERATED(bitwise_left_shift_Tensor, bitwise_left_shift_out, bitwise_left_shift_Tensor, bitwise_left_shift_Tensor_out, bitwise_left_shift_outf), at::_ops::bitwise_left_shift__Tensor>(m);
  register_structured<ITERATED(bitwise_not, bitwise_not_out, bitwise_not, bitwise_not_out, bitwise_not_outf), at::_ops::bitwise_not_>(m);
  register_structured<ITERATED(bitwise_or_Tensor, bitwise_or_out, bitwise_or_Tensor, bitwise_or_Tensor_out, bitwise_or_outf), at::_ops::bitwise_or__Tensor>(m);
  register_structured<ITERATED(bitwise_right_shift_Tensor, bitwise_right_shift_out, bitwise_right_shift_Tensor, bitwise_right_shift_Tensor_out, bitwise_right_shift_outf), at::_ops::bitwise_right_shift__Tensor>(m);
  register_structured<ITERATED(bitwise_xor_Tensor, bitwise_xor_out, bitwise_xor_Tensor, bitwise_xor_Tensor_out, bitwise_xor_outf), at::_ops::bitwise_xor__Tensor>(m);
  register_structured<STRUCTURED(bmm, bmm, bmm_out, bmm_outf)>(m);
  register_structured<STRUCTURED(cat, cat, cat_out, cat_outf)>(m);
  register_structured<ITERATED(ceil, ceil_out, ceil, ceil_out, ceil_outf), at::_ops::ceil_>(m);
  register_structured<ITERATED(clamp, clamp_out, clamp, clamp_out, clamp_outf), at::_ops::clamp_>(m);
  register_structured<ITERATED(clamp_Tensor, clamp_Tensor_out, clamp_Tensor, clamp_Tensor_out, clamp_outf), at::_ops::clamp__Tensor>(m);
  register_structured<ITERATED(clamp_max, clamp_max_out, clamp_max, clamp_max_out, clamp_max_outf), at::_ops::clamp_max_>(m);
  register_structured<ITERATED(clamp_max_Tensor, clamp_max_Tensor_out, clamp_max_Tensor, clamp_max_Tensor_out, clamp_max_outf), at::_ops::clamp_max__Tensor>(m);
  register_structured<ITERATED(clamp_min, clamp_min_out, clamp_min, clamp_min_out, clamp_min_outf), at::_ops::clamp_min_>(m);
  register_structured<ITERATED(clamp_min_Tensor, clamp_min_Tensor_out, clamp_min_Tensor, clamp_min_Tensor_out, clamp_min_outf), at::_ops::clamp_min__Tensor>(m);
  register_structured<ITERATED(copysign_Tensor, copysign_out, copysign_Tensor, copysign_out, copysign_outf), at::_ops::copysign__Tensor>(m);
  register_structured<ITERATED(cos, cos_out, cos, cos_out, cos_outf), at::_ops::cos_>(m);
  register_structured<ITERATED(cosh, cosh_out, cosh, cosh_out, cosh_outf), at::_ops::cosh_>(m);
  register_structured<STRUCTURED(cumprod, cumprod, cumprod_out, cumprod_outf), at::_ops::cumprod_>(m);
  register_structured<STRUCTURED(cumsum, cumsum, cumsum_out, cumsum_outf), at::_ops::cumsum_>(m);
  register_structured<ITERATED(digamma, digamma_out, digamma, digamma_out, digamma_outf), at::_ops::digamma_>(m);
  register_structured<ITERATED(div_Tensor, div_out, div_Tensor, div_out, div_outf), at::_ops::div__Tensor>(m);
  register_structured<ITERATED(div_Tensor_mode, div_out_mode, div_Tensor_mode, div_out_mode, div_outf), at::_ops::div__Tensor_mode>(m);
  register_structured<ITERATED(elu, elu_out, elu, elu_out, elu_outf), at::_ops::elu_>(m);
  register_structured<ITERATED(elu_backward, elu_backward_out, elu_backward, elu_backward_grad_input, elu_backward_outf)>(m);
  register_structured<ITERATED(eq_Scalar, eq_Scalar_out, eq_Scalar, eq_Scalar_out, eq_outf), at::_ops::eq__Scalar>(m);
  register_structured<ITERATED(eq_Tensor, eq_Tensor_out, eq_Tensor, eq_Tensor_out, eq_outf), at::_ops::eq__Tensor>(m);
  register_structured<ITERATED(erf, erf_out, erf, erf_out, erf_outf), at::_ops::erf_>(m);
  register_structured<ITERATED(erfc, erfc_out, erfc, erfc_out, erfc_outf), at::_ops::erfc_>(m);
  register_structured<ITERATED(erfinv, erfinv_out, erfinv, erfinv_out, erfinv_outf), at::_ops::erfinv_>(m);
  register_structured<ITERATED(exp, exp_out, exp, exp_out, exp_outf), at::_ops::exp_>(m);
  register_structured<ITERATED(exp2, exp2_out, exp2, exp2_out, exp2_outf), at::_ops::exp2_>(m);
  register_structured<ITERATED(expm1, expm1_out, expm1, expm1_out, expm1_outf), at::_ops::expm1_>(m);
  register_structured<ITERATED(floor, floor_out, floor, floor_out, floor_outf), at::_ops::floor_>(m);
}

}  // namespace openreg::ops
