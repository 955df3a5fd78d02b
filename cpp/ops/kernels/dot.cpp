// Products of vectors. PyTorch expects these kernels to handle zero tensors without memory and
// conjugation: both are decided here by the arguments' bits, and the launched kernel is a product
// of vectors without such bits.
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/dot_native.h>
#include <ATen/ops/vdot.h>
#include <ATen/ops/vdot_native.h>

#include "ops/launch/function_kernel.h"
#include "ops/tensors/factories.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

// ATen's kernel for bfloat16 is scalar.
at::Tensor in_float(const at::Tensor& vector) {
  return vector.scalar_type() == at::kBFloat16 ? vector.to(at::kFloat) : vector;
}

void run_dot(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  out.copy_(at::native::dot(in_float(self), in_float(other)));
}
void run_vdot(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  out.copy_(at::native::vdot(self, other));
}
const FunctionKernel<&run_dot> dot_kernel{"aten::dot"};
const FunctionKernel<&run_vdot> vdot_kernel{"aten::vdot"};

void check_vectors(const char* op, const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  SameDevice devices(op);
  devices.check(self);
  devices.check(other);
}

template <class KernelOfVectors>
at::Tensor product(const char* op, const KernelOfVectors& kernel, const at::Tensor& self,
                   const at::Tensor& other) {
  check_vectors(op, self, other);
  if (self._is_zerotensor() || other._is_zerotensor())
    return at::_efficientzerotensor({}, self.options());
  auto out = empty_on(self.device(), {}, self.scalar_type());
  kernel.launch(self.device(), self, other, out);
  return out;
}

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_conj()) {
    return other.is_conj() ? at::dot(self.conj(), other.conj()).conj()
                           : at::vdot(self.conj(), other);
  }
  if (other.is_conj()) return at::vdot(other.conj(), self);
  return product("aten::dot", dot_kernel, self, other);
}

at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  if (!self.is_complex()) return at::dot(self, other);
  if (self.is_conj()) {
    return other.is_conj() ? at::vdot(other.conj(), self.conj()) : at::dot(self.conj(), other);
  }
  if (other.is_conj()) return at::dot(self, other.conj()).conj();
  return product("aten::vdot", vdot_kernel, self, other);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("dot", TORCH_FN(dot));
  m.impl("vdot", TORCH_FN(vdot));
}

}  // namespace openreg::ops
