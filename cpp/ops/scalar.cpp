#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include "ops/cpu_alias.h"
#include "ops/launch.h"

namespace openreg::ops {

namespace {

/// item(): waits for the current stream, then the host reads the element.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  wait_for_device(self.device());
  CpuAliases aliases(self.device());
  return at::native::_local_scalar_dense_cpu(aliases.alias(self));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

}  // namespace openreg::ops
