// addr_, which ATen implements through addr.out. The CPU's kernel for that compares the addresses
// of tensor handles to find out whether its output is its input, and checks the shape only in that
// case; with boxed arguments the addresses always differ. So the shape is checked here.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addr.h>

#include "slot.h"

namespace openreg::ops {

namespace {

at::Tensor& addr_(at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2,
                  const at::Scalar& beta, const at::Scalar& alpha) {
  if (vec1.dim() == 1 && vec2.dim() == 1) {  // the kernel refuses others
    TORCH_CHECK(self.dim() == 2, "2D tensor expected, got ", self.dim(), "D tensor for input");
    TORCH_CHECK(self.size(0) == vec1.size(0) && self.size(1) == vec2.size(0),
                "size mismatch, input: ", self.sizes(), ", v1: ", vec1.sizes(),
                ", v2: ", vec2.sizes());
  }
  return at::addr_out(self, self, vec1, vec2, beta, alpha);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("addr_", TORCH_FN(addr_)); }

}  // namespace openreg::ops
