// Tensors that get another size or another storage. PyTorch's own functions for the CPU copy the
// elements on the host, so a device needs its own.
#include "resize.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "allocator.h"
#include "device.h"

namespace torch_acme {

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  auto& impl = *storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  auto memory = allocator().allocate(bytes);
  allocator().copy_data(memory.get(), impl.data(), std::min(bytes, impl.nbytes()));
  // The old memory may belong to another stream than the one that copies.
  record_stream(impl.data_ptr(), to_torch(current_stream(-1)));
  impl.set_data_ptr_noswap(std::move(memory));
  impl.set_nbytes(bytes);
}

void grow_storage(const c10::Storage& storage, std::size_t bytes) {
  if (bytes > storage.nbytes()) resize_storage(storage, bytes);
}

namespace {

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  auto* const impl = self.unsafeGetTensorImpl();
  // A tensor that has this size already keeps its strides. The fallback resizes every tensor that
  // it writes, so a view would become another part of its storage.
  if (self.sizes() != size) {
    grow_storage(self.storage(), at::detail::computeStorageNbytesContiguous(
                                     size, self.dtype().itemsize(), self.storage_offset()));
    impl->set_sizes_contiguous(size);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_part(at::Tensor& self, at::Storage source, std::int64_t offset,
                     at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(self.device() == source.device(), "acme: the storage is on another device (got ",
              source.device(), ", expected ", self.device(), ")");
  const auto item = self.dtype().itemsize();
  grow_storage(source, stride.empty()
                           ? at::detail::computeStorageNbytesContiguous(size, item, offset)
                           : at::detail::computeStorageNbytes(size, stride, item, offset));
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_part(self, std::move(source), 0, elements, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, at::empty({0}, self.options()).storage());
}

}  // namespace

// The fallback would change copies of the tensors, and their storages would stay as they are.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_part));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

}  // namespace torch_acme
