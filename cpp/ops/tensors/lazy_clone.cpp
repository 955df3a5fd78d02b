#include <ATen/ops/_lazy_clone_native.h>

#include "backend/shared_memory.h"
#include "slot.h"

namespace openreg::ops {

namespace {

at::Tensor lazy_clone(const at::Tensor& self) {
  auto clone = at::native::_lazy_clone(self);
  backend::order_first_write(self.storage());
  backend::order_first_write(clone.storage());
  return clone;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("_lazy_clone", TORCH_FN(lazy_clone)); }

}  // namespace openreg::ops
