// Operators of the device, which do not make the host wait. Add yours here; all others run in the
// fallback.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <torch/library.h>

#include "launch.h"
#include "structured.h"

namespace torch_acme {

namespace {

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  launch(self, [self = to_write(self), value] { self.fill_(value); });
  return self;
}

at::Tensor& zero_(at::Tensor& self) { return fill_(self, 0); }

template <class Operator, class Meta>
constexpr auto* kernel = &Structured<Operator, Meta>::run;

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  namespace meta = at::meta;
  m.impl("fill_.Scalar", TORCH_FN(fill_));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("add.out", kernel<ops::add_out, meta::structured_add_Tensor>);
  m.impl("sub.out", kernel<ops::sub_out, meta::structured_sub_Tensor>);
  m.impl("mul.out", kernel<ops::mul_out, meta::structured_mul_Tensor>);
  m.impl("div.out", kernel<ops::div_out, meta::structured_div_Tensor>);
  m.impl("mm.out", kernel<ops::mm_out, meta::structured_mm>);
  m.impl("bmm.out", kernel<ops::bmm_out, meta::structured_bmm>);
  m.impl("addmm.out", kernel<ops::addmm_out, meta::structured_addmm>);
  m.impl("exp.out", kernel<ops::exp_out, meta::structured_exp>);
  m.impl("tanh.out", kernel<ops::tanh_out, meta::structured_tanh>);
  m.impl("sigmoid.out", kernel<ops::sigmoid_out, meta::structured_sigmoid>);
  m.impl("sqrt.out", kernel<ops::sqrt_out, meta::structured_sqrt>);
  m.impl("threshold_backward.grad_input",
         kernel<ops::threshold_backward_grad_input, meta::structured_threshold_backward>);
}

}  // namespace torch_acme
