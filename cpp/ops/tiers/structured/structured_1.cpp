// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured.h"

#include <ATen/ops/argmin_cpu_dispatch.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/asinh_cpu_dispatch.h>
#include <ATen/ops/asinh_meta.h>
#include <ATen/ops/asinh_ops.h>
#include <ATen/ops/atan2_cpu_dispatch.h>
#include <ATen/ops/atan2_meta.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/atanh_cpu_dispatch.h>
#include <ATen/ops/atanh_meta.h>
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
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_left_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_left_shift_meta.h>
#include <ATen/ops/bitwise_left_shift_ops.h>
#include <ATen/ops/bitwise_not_cpu_dispatch.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_cpu_dispatch.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_right_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_right_shift_meta.h>
#include <ATen/ops/bitwise_right_shift_ops.h>
#include <ATen/ops/bitwise_xor_cpu_dispatch.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/ceil_cpu_dispatch.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/clamp_max_cpu_dispatch.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/copysign_cpu_dispatch.h>
#include <ATen/ops/copysign_meta.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_cpu_dispatch.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/cumprod_cpu_dispatch.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/digamma_cpu_dispatch.h>
#include <ATen/ops/digamma_meta.h>
#include <ATen/ops/digamma_ops.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_backward_cpu_dispatch.h>
#include <ATen/ops/elu_backward_meta.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_cpu_dispatch.h>
#include <ATen/ops/elu_meta.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/erfinv_meta.h>
#include <ATen/ops/erfinv_ops.h>
#include <ATen/ops/exp2_cpu_dispatch.h>
#include <ATen/ops/exp2_meta.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_cpu_dispatch.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_cpu_dispatch.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/floor_ops.h>

namespace openreg::ops {

#define STRUCTURED(META, FUNCTIONAL, OUT, KERNEL) \
  Structured<at::meta::structured_##META, at::_ops::FUNCTIONAL, at::_ops::OUT, &at::cpu::KERNEL>, \
      at::_ops::FUNCTIONAL, at::_ops::OUT

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<STRUCTURED(argmin, argmin, argmin_out, argmin_outf)>(m);
  register_structured<STRUCTURED(asin, asin, asin_out, asin_outf), at::_ops::asin_>(m);
  register_structured<STRUCTURED(asinh, asinh, asinh_out, asinh_outf), at::_ops::asinh_>(m);
  register_structured<STRUCTURED(atan, atan, atan_out, atan_outf), at::_ops::atan_>(m);
  register_structured<STRUCTURED(atan2, atan2, atan2_out, atan2_outf), at::_ops::atan2_>(m);
  register_structured<STRUCTURED(atanh, atanh, atanh_out, atanh_outf), at::_ops::atanh_>(m);
  register_structured<STRUCTURED(avg_pool2d, avg_pool2d, avg_pool2d_out, avg_pool2d_outf)>(m);
  register_structured<STRUCTURED(avg_pool2d_backward, avg_pool2d_backward, avg_pool2d_backward_grad_input, avg_pool2d_backward_outf)>(m);
  register_structured<STRUCTURED(avg_pool3d, avg_pool3d, avg_pool3d_out, avg_pool3d_outf)>(m);
  register_structured<STRUCTURED(avg_pool3d_backward, avg_pool3d_backward, avg_pool3d_backward_grad_input, avg_pool3d_backward_outf)>(m);
  register_structured<STRUCTURED(baddbmm, baddbmm, baddbmm_out, baddbmm_outf), at::_ops::baddbmm_>(m);
  register_structured<STRUCTURED(bitwise_and_Tensor, bitwise_and_Tensor, bitwise_and_Tensor_out, bitwise_and_outf), at::_ops::bitwise_and__Tensor>(m);
  register_structured<STRUCTURED(bitwise_left_shift_Tensor, bitwise_left_shift_Tensor, bitwise_left_shift_Tensor_out, bitwise_left_shift_outf), at::_ops::bitwise_left_shift__Tensor>(m);
  register_structured<STRUCTURED(bitwise_not, bitwise_not, bitwise_not_out, bitwise_not_outf), at::_ops::bitwise_not_>(m);
  register_structured<STRUCTURED(bitwise_or_Tensor, bitwise_or_Tensor, bitwise_or_Tensor_out, bitwise_or_outf), at::_ops::bitwise_or__Tensor>(m);
  register_structured<STRUCTURED(bitwise_right_shift_Tensor, bitwise_right_shift_Tensor, bitwise_right_shift_Tensor_out, bitwise_right_shift_outf), at::_ops::bitwise_right_shift__Tensor>(m);
  register_structured<STRUCTURED(bitwise_xor_Tensor, bitwise_xor_Tensor, bitwise_xor_Tensor_out, bitwise_xor_outf), at::_ops::bitwise_xor__Tensor>(m);
  register_structured<STRUCTURED(bmm, bmm, bmm_out, bmm_outf)>(m);
  register_structured<STRUCTURED(cat, cat, cat_out, cat_outf)>(m);
  register_structured<STRUCTURED(ceil, ceil, ceil_out, ceil_outf), at::_ops::ceil_>(m);
  register_structured<STRUCTURED(clamp, clamp, clamp_out, clamp_outf), at::_ops::clamp_>(m);
  register_structured<STRUCTURED(clamp_Tensor, clamp_Tensor, clamp_Tensor_out, clamp_outf), at::_ops::clamp__Tensor>(m);
  register_structured<STRUCTURED(clamp_max, clamp_max, clamp_max_out, clamp_max_outf), at::_ops::clamp_max_>(m);
  register_structured<STRUCTURED(clamp_max_Tensor, clamp_max_Tensor, clamp_max_Tensor_out, clamp_max_outf), at::_ops::clamp_max__Tensor>(m);
  register_structured<STRUCTURED(clamp_min, clamp_min, clamp_min_out, clamp_min_outf), at::_ops::clamp_min_>(m);
  register_structured<STRUCTURED(clamp_min_Tensor, clamp_min_Tensor, clamp_min_Tensor_out, clamp_min_outf), at::_ops::clamp_min__Tensor>(m);
  register_structured<STRUCTURED(copysign_Tensor, copysign_Tensor, copysign_out, copysign_outf), at::_ops::copysign__Tensor>(m);
  register_structured<STRUCTURED(cos, cos, cos_out, cos_outf), at::_ops::cos_>(m);
  register_structured<STRUCTURED(cosh, cosh, cosh_out, cosh_outf), at::_ops::cosh_>(m);
  register_structured<STRUCTURED(cumprod, cumprod, cumprod_out, cumprod_outf), at::_ops::cumprod_>(m);
  register_structured<STRUCTURED(cumsum, cumsum, cumsum_out, cumsum_outf), at::_ops::cumsum_>(m);
  register_structured<STRUCTURED(digamma, digamma, digamma_out, digamma_outf), at::_ops::digamma_>(m);
  register_structured<STRUCTURED(div_Tensor, div_Tensor, div_out, div_outf), at::_ops::div__Tensor>(m);
  register_structured<STRUCTURED(div_Tensor_mode, div_Tensor_mode, div_out_mode, div_outf), at::_ops::div__Tensor_mode>(m);
  register_structured<STRUCTURED(elu, elu, elu_out, elu_outf), at::_ops::elu_>(m);
  register_structured<STRUCTURED(elu_backward, elu_backward, elu_backward_grad_input, elu_backward_outf)>(m);
  register_structured<STRUCTURED(eq_Scalar, eq_Scalar, eq_Scalar_out, eq_outf), at::_ops::eq__Scalar>(m);
  register_structured<STRUCTURED(eq_Tensor, eq_Tensor, eq_Tensor_out, eq_outf), at::_ops::eq__Tensor>(m);
  register_structured<STRUCTURED(erf, erf, erf_out, erf_outf), at::_ops::erf_>(m);
  register_structured<STRUCTURED(erfc, erfc, erfc_out, erfc_outf), at::_ops::erfc_>(m);
  register_structured<STRUCTURED(erfinv, erfinv, erfinv_out, erfinv_outf), at::_ops::erfinv_>(m);
  register_structured<STRUCTURED(exp, exp, exp_out, exp_outf), at::_ops::exp_>(m);
  register_structured<STRUCTURED(exp2, exp2, exp2_out, exp2_outf), at::_ops::exp2_>(m);
  register_structured<STRUCTURED(expm1, expm1, expm1_out, expm1_outf), at::_ops::expm1_>(m);
  register_structured<STRUCTURED(floor, floor, floor_out, floor_outf), at::_ops::floor_>(m);
}

#undef STRUCTURED

}  // namespace openreg::ops
