// Written by tools/generate_structured.py from the schema that ships with torch 2.13.0. Do not edit.
#include "backend/library.h"
#include "ops/tiers/structured_macros.h"

#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_cpu_dispatch.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_meta.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_ops.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_cpu_dispatch.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_meta.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_ops.h>
#include <ATen/ops/_linalg_det_cpu_dispatch.h>
#include <ATen/ops/_linalg_det_meta.h>
#include <ATen/ops/_linalg_det_ops.h>
#include <ATen/ops/_linalg_eigh_cpu_dispatch.h>
#include <ATen/ops/_linalg_eigh_meta.h>
#include <ATen/ops/_linalg_eigh_ops.h>
#include <ATen/ops/_linalg_slogdet_cpu_dispatch.h>
#include <ATen/ops/_linalg_slogdet_meta.h>
#include <ATen/ops/_linalg_slogdet_ops.h>
#include <ATen/ops/_linalg_solve_ex_cpu_dispatch.h>
#include <ATen/ops/_linalg_solve_ex_meta.h>
#include <ATen/ops/_linalg_solve_ex_ops.h>
#include <ATen/ops/_linalg_svd_cpu_dispatch.h>
#include <ATen/ops/_linalg_svd_meta.h>
#include <ATen/ops/_linalg_svd_ops.h>
#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bicubic2d_aa_cpu_dispatch.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_cpu_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_cpu_dispatch.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_cpu_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/acos_cpu_dispatch.h>
#include <ATen/ops/acos_meta.h>
#include <ATen/ops/acos_native.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/acosh_cpu_dispatch.h>
#include <ATen/ops/acosh_meta.h>
#include <ATen/ops/acosh_native.h>
#include <ATen/ops/acosh_ops.h>
#include <ATen/ops/adaptive_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool3d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcdiv_native.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/addcmul_native.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/all_cpu_dispatch.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_cpu_dispatch.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_cpu_dispatch.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/aminmax_cpu_dispatch.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/any_cpu_dispatch.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmax_ops.h>

namespace openreg::ops {

OPENREG_LIBRARY_IMPL(aten, m) {
  register_structured<STRUCTURED(_addmm_activation, _addmm_activation, _addmm_activation_out, _addmm_activation_outf)>(m);
  register_structured<STRUCTURED(_convert_indices_from_coo_to_csr, _convert_indices_from_coo_to_csr, _convert_indices_from_coo_to_csr_out, _convert_indices_from_coo_to_csr_outf)>(m);
  register_structured<STRUCTURED(_convert_indices_from_csr_to_coo, _convert_indices_from_csr_to_coo, _convert_indices_from_csr_to_coo_out, _convert_indices_from_csr_to_coo_outf)>(m);
  register_structured<STRUCTURED(_linalg_det, _linalg_det, _linalg_det_result, _linalg_det_outf)>(m);
  register_structured<STRUCTURED(_linalg_eigh, _linalg_eigh, _linalg_eigh_eigenvalues, _linalg_eigh_outf)>(m);
  register_structured<STRUCTURED(_linalg_slogdet, _linalg_slogdet, _linalg_slogdet_sign, _linalg_slogdet_outf)>(m);
  register_structured<STRUCTURED(_linalg_solve_ex, _linalg_solve_ex, _linalg_solve_ex_result, _linalg_solve_ex_outf)>(m);
  register_structured<STRUCTURED(_linalg_svd, _linalg_svd, _linalg_svd_U, _linalg_svd_outf)>(m);
  register_structured<STRUCTURED(_log_softmax, _log_softmax, _log_softmax_out, _log_softmax_outf)>(m);
  register_structured<STRUCTURED(_log_softmax_backward_data, _log_softmax_backward_data, _log_softmax_backward_data_out, _log_softmax_backward_data_outf)>(m);
  register_structured<STRUCTURED(_softmax, _softmax, _softmax_out, _softmax_outf)>(m);
  register_structured<STRUCTURED(_softmax_backward_data, _softmax_backward_data, _softmax_backward_data_out, _softmax_backward_data_outf)>(m);
  register_structured<STRUCTURED(_upsample_bicubic2d_aa, _upsample_bicubic2d_aa, _upsample_bicubic2d_aa_out, _upsample_bicubic2d_aa_outf)>(m);
  register_structured<STRUCTURED(_upsample_bicubic2d_aa_backward, _upsample_bicubic2d_aa_backward, _upsample_bicubic2d_aa_backward_grad_input, _upsample_bicubic2d_aa_backward_outf)>(m);
  register_structured<STRUCTURED(_upsample_bilinear2d_aa, _upsample_bilinear2d_aa, _upsample_bilinear2d_aa_out, _upsample_bilinear2d_aa_outf)>(m);
  register_structured<STRUCTURED(_upsample_bilinear2d_aa_backward, _upsample_bilinear2d_aa_backward, _upsample_bilinear2d_aa_backward_grad_input, _upsample_bilinear2d_aa_backward_outf)>(m);
  register_structured<STRUCTURED(_upsample_lanczos2d_aa, _upsample_lanczos2d_aa, _upsample_lanczos2d_aa_out, _upsample_lanczos2d_aa_outf)>(m);
  register_structured<STRUCTURED(_upsample_lanczos2d_aa_backward, _upsample_lanczos2d_aa_backward, _upsample_lanczos2d_aa_backward_grad_input, _upsample_lanczos2d_aa_backward_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact1d, _upsample_nearest_exact1d, _upsample_nearest_exact1d_out, _upsample_nearest_exact1d_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact1d_backward, _upsample_nearest_exact1d_backward, _upsample_nearest_exact1d_backward_grad_input, _upsample_nearest_exact1d_backward_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact2d, _upsample_nearest_exact2d, _upsample_nearest_exact2d_out, _upsample_nearest_exact2d_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact2d_backward, _upsample_nearest_exact2d_backward, _upsample_nearest_exact2d_backward_grad_input, _upsample_nearest_exact2d_backward_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact3d, _upsample_nearest_exact3d, _upsample_nearest_exact3d_out, _upsample_nearest_exact3d_outf)>(m);
  register_structured<STRUCTURED(_upsample_nearest_exact3d_backward, _upsample_nearest_exact3d_backward, _upsample_nearest_exact3d_backward_grad_input, _upsample_nearest_exact3d_backward_outf)>(m);
  register_structured<ITERATED(acos, acos_out, acos, acos_out, acos_outf), at::_ops::acos_>(m);
  register_structured<ITERATED(acosh, acosh_out, acosh, acosh_out, acosh_outf), at::_ops::acosh_>(m);
  register_structured<STRUCTURED(adaptive_max_pool2d, adaptive_max_pool2d, adaptive_max_pool2d_out, adaptive_max_pool2d_outf)>(m);
  register_structured<STRUCTURED(adaptive_max_pool2d_backward, adaptive_max_pool2d_backward, adaptive_max_pool2d_backward_grad_input, adaptive_max_pool2d_backward_outf)>(m);
  register_structured<STRUCTURED(adaptive_max_pool3d, adaptive_max_pool3d, adaptive_max_pool3d_out, adaptive_max_pool3d_outf)>(m);
  register_structured<STRUCTURED(adaptive_max_pool3d_backward, adaptive_max_pool3d_backward, adaptive_max_pool3d_backward_grad_input, adaptive_max_pool3d_backward_outf)>(m);
  register_structured<ITERATED(add_Tensor, ufunc_add_CPU, add_Tensor, add_out, add_outf), at::_ops::add__Tensor>(m);
  register_structured<ITERATED(addcdiv, addcdiv_out, addcdiv, addcdiv_out, addcdiv_outf), at::_ops::addcdiv_>(m);
  register_structured<ITERATED(addcmul, addcmul_out, addcmul, addcmul_out, addcmul_outf), at::_ops::addcmul_>(m);
  register_structured<STRUCTURED(addmm, addmm, addmm_out, addmm_outf), at::_ops::addmm_>(m);
  register_structured<STRUCTURED(addmv, addmv, addmv_out, addmv_outf), at::_ops::addmv_>(m);
  register_structured<STRUCTURED(all, all, all_all_out, all_outf)>(m);
  register_structured<STRUCTURED(all_dim, all_dim, all_out, all_outf)>(m);
  register_structured<STRUCTURED(all_dims, all_dims, all_dims_out, all_outf)>(m);
  register_structured<STRUCTURED(amax, amax, amax_out, amax_outf)>(m);
  register_structured<STRUCTURED(amin, amin, amin_out, amin_outf)>(m);
  register_structured<STRUCTURED(aminmax, aminmax, aminmax_out, aminmax_outf)>(m);
  register_structured<STRUCTURED(any, any, any_all_out, any_outf)>(m);
  register_structured<STRUCTURED(any_dim, any_dim, any_out, any_outf)>(m);
  register_structured<STRUCTURED(any_dims, any_dims, any_dims_out, any_outf)>(m);
  register_structured<STRUCTURED(argmax, argmax, argmax_out, argmax_outf)>(m);
}

}  // namespace openreg::ops
