// Operators that only make another tensor over the same storage. They touch no memory, so ATen's
// own code is used.
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "ops/tensors/storage.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// Sets `self` to a part of `source`, which grows if it is too small, as in PyTorch's backends.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  // ATen checks this too, but only after the storage has grown as if it were one of this device.
  TORCH_CHECK(self.device() == source.device(),
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  grow_storage(source, bytes_needed(size, stride, self.dtype().itemsize(), offset));
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, elements, {});
}

at::Tensor& set_empty(at::Tensor& self) {
  return set_whole_storage(self, empty_storage(self.device()));
}

/// ATen's composite kernel reads the shape on the host.
at::Tensor reshape_from_tensor(const at::Tensor& self, const at::Tensor& shape_tensor) {
  TORCH_CHECK(shape_tensor.dim() == 1);
  const at::Tensor on_host = shape_tensor.cpu().contiguous();
  const auto* const sizes = on_host.const_data_ptr<std::int64_t>();
  return self.reshape({sizes, static_cast<std::size_t>(on_host.numel())});
}

/// True if both are strided and each is on the device or on the CPU: then Module.to keeps its
/// Parameters, and `p.data = other` is allowed.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto ours = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (t.is_cpu() || backend::is_openreg(t));
  };
  return ours(self) && ours(from);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("_reshape_from_tensor", TORCH_FN(reshape_from_tensor));
}

// Above autograd, which knows the gradient of a reshape but not that of this operator.
OPENREG_LIBRARY_IMPL_FOR(Autograd, aten, m) {
  m.impl("_reshape_from_tensor", TORCH_FN(reshape_from_tensor));
}

}  // namespace openreg::ops
