#include "ops/wire/tensor_pool.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "base/per_thread.h"

namespace openreg::ops {

namespace {

at::Tensor make_new(void* data, std::size_t nbytes, c10::ScalarType dtype) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes,
                       c10::DataPtr(data, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                       /*resizable=*/false);
  return at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                       c10::scalarTypeToTypeMeta(dtype));
}

/// Those of a new tensor: the constructor adds those of autograd.
c10::DispatchKeySet keys_when_new() {
  static const auto keys = [] {
    const c10::InferenceMode off(false);  // its tensors have none of autograd's keys
    return make_new(nullptr, 0, at::kFloat).key_set();
  }();
  return keys;
}

/// Whether nothing else refers to the tensor or its storage, and no kernel has changed more than
/// what make() sets and what the sizes set.
bool is_usable(const at::Tensor& tensor) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  const auto& storage = impl->unsafe_storage();
  return tensor.use_count() == 1 && tensor.weak_use_count() == 1 && storage.use_count() == 1 &&
         !storage.resizable() && impl->key_set() == keys_when_new() && !impl->is_wrapped_number() &&
         impl->autograd_meta() == nullptr;
}

}  // namespace

TensorPool* TensorPool::of_thread() { return per_thread<TensorPool>(); }

at::Tensor TensorPool::make(void* data, std::size_t nbytes, c10::ScalarType dtype) {
  if (free_.empty()) return make_new(data, nbytes, dtype);
  auto tensor = std::move(free_.back());
  free_.pop_back();
  auto* const impl = tensor.unsafeGetTensorImpl();
  auto* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(data, c10::Device(c10::kCPU)));
  storage->set_nbytes(nbytes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  if (impl->dtype() != type) impl->set_storage_and_dtype(impl->unsafe_storage(), type);
  return tensor;
}

void TensorPool::take_back(at::Tensor tensor) noexcept {
  if (free_.size() < kMost && is_usable(tensor)) free_.push_back(std::move(tensor));
}

at::Tensor make_tensor_over(void* data, std::size_t nbytes, c10::ScalarType dtype) {
  if (auto* const pool = TensorPool::of_thread()) return pool->make(data, nbytes, dtype);
  return make_new(data, nbytes, dtype);
}

}  // namespace openreg::ops
