#include "ops/cpu_alias.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/copy_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include <cstring>

#include "ops/factories.h"
#include "ops/launch.h"
#include "ops/storage.h"
#include "runtime/address_space.h"

namespace openreg::ops {

namespace {

/// A new tensor over `storage` with the geometry, dtype and bits of `like`.
at::Tensor tensor_like(const at::Tensor& like, const c10::Storage& storage, c10::DispatchKey key) {
  auto tensor = at::Tensor(at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), like.dtype()));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

/// A new nested tensor of the parts of `like`, over `buffer`. (Sizes and offsets lie on the CPU.)
at::Tensor nested_like(const at::Tensor& like, const at::Tensor& buffer) {
  const auto& nested = *at::native::get_nested_tensor_impl(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      buffer, nested.get_nested_sizes(), nested.get_nested_strides(), nested.get_storage_offsets());
}
at::Tensor buffer_of(const at::Tensor& nested) {
  return at::native::get_nested_tensor_impl(nested)->get_unsafe_storage_as_tensor();
}

void release_storage(void* context) { delete static_cast<c10::Storage*>(context); }

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

}  // namespace

CpuAliases::StoragePair& CpuAliases::storage_pair(const c10::Storage& device_storage) {
  for (auto& pair : storages_) {
    if (pair.device.is_alias_of(device_storage)) return pair;
  }
  if (c10::impl::cow::is_cow_data_ptr(device_storage.data_ptr())) {
    // The kernel may write: no more sharing of memory. The copy is queued, so it has to be awaited.
    device_storage.mutable_data();
    wait_for_device_again(device_);
  }
  auto* memory = AddressSpace::get().aperture(device_storage.data());
  c10::DataPtr data(memory, new c10::Storage(device_storage), &release_storage,
                    c10::Device(c10::kCPU));
  c10::Storage cpu(c10::Storage::use_byte_size_t(), device_storage.nbytes(), std::move(data),
                   c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({device_storage, std::move(cpu), memory});
  return storages_.back();
}

at::Tensor CpuAliases::alias(const at::Tensor& tensor) {
  for (const auto& pair : tensors_) {
    if (pair.device.is_same(tensor)) return pair.cpu;
  }
  const auto& storage = storage_pair(tensor.storage()).cpu;
  if (tensor.is_nested()) {
    return nested_like(tensor, tensor_like(buffer_of(tensor), storage, c10::DispatchKey::CPU));
  }
  auto cpu = tensor_like(tensor, storage, c10::DispatchKey::CPU);
  tensors_.push_back({tensor, cpu});
  return cpu;
}

void CpuAliases::copy_to_device(const c10::Storage& cpu, const c10::Storage& device) const {
  // The device memory was taken from the stream's free list just now. Commands that another thread
  // queued may still read what it held before, so they have to run first.
  wait_for_device_again(device_);
  std::memcpy(AddressSpace::get().aperture(device.data()), cpu.data(), cpu.nbytes());
}

c10::Storage CpuAliases::device_storage(const c10::Storage& cpu) {
  for (const auto& pair : storages_) {
    if (pair.cpu.is_alias_of(cpu)) return pair.device;
  }
  const auto nbytes = static_cast<std::int64_t>(cpu.nbytes());
  auto storage = empty_on(device_, {nbytes}, at::kByte).storage();
  if (nbytes != 0) copy_to_device(cpu, storage);
  storages_.push_back({storage, cpu, cpu.data()});  // a second tensor may share it
  return storage;
}

void CpuAliases::take_over_changes() {
  for (auto& [device, cpu] : tensors_) {  // first, since it changes elements
    if (device.is_conj() == cpu.is_conj() && device.is_neg() == cpu.is_neg()) continue;
    const auto resolved = cpu.clone();
    auto* impl = cpu.unsafeGetTensorImpl();
    impl->_set_conj(device.is_conj());
    impl->_set_neg(device.is_neg());
    at::native::copy_(cpu, resolved, /*non_blocking=*/false);
  }
  for (auto& pair : storages_) {
    if (pair.cpu.data() == pair.memory) continue;
    grow_storage(pair.device, pair.cpu.nbytes());
    copy_to_device(pair.cpu, pair.device);
  }
  for (auto& [device, cpu] : tensors_) {
    auto* impl = device.unsafeGetTensorImpl();
    const auto storage = device_storage(cpu.storage());
    if (!storage.is_alias_of(device.storage())) impl->set_storage_and_dtype(storage, cpu.dtype());
    if (!same_geometry(device, cpu)) {
      impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
  }
}

at::Tensor CpuAliases::to_device(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) return result;
  TORCH_CHECK_NOT_IMPLEMENTED(
      result.layout() == at::kStrided && !result.is_quantized(),
      "openreg: this operator returns a kind of tensor that openreg does not have (got layout ",
      result.layout(), ", dtype ", result.scalar_type(),
      ", expected a strided one that is not quantized); call it on the CPU");
  if (result.is_nested()) {
    const auto storage = device_storage(result.storage());
    return nested_like(result,
                       tensor_like(buffer_of(result), storage, c10::DispatchKey::PrivateUse1));
  }
  for (const auto& pair : tensors_) {
    if (pair.cpu.is_same(result)) return pair.device;
  }
  return tensor_like(result, device_storage(result.storage()), c10::DispatchKey::PrivateUse1);
}

}  // namespace openreg::ops
