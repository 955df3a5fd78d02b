#include "ops/tensors/cpu_alias.h"

#include <ATen/ops/copy_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>

#include <cstring>

#include "address_space/address_space.h"
#include "backend/exception.h"
#include "backend/stream.h"
#include "base/error.h"
#include "ops/launch/launch.h"
#include "ops/launch/memory_of_command.h"
#include "ops/tensors/factories.h"
#include "ops/tensors/storage.h"
#include "ops/tensors/tensor_parts.h"
#include "ops/wire/extent.h"
#include "runtime/command_error.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void release_storage(void* context) { delete static_cast<c10::Storage*>(context); }

}  // namespace

void check_accesses_of_host(DeviceWorkScope& work) {
  if (!work.is_illegal()) return;
  backend::translate_errors([&] {
    const auto what = work.what();
    try {
      work.check();
    } catch (const Error&) {
      throw CommandError(what.name, 0, what.device,
                         backend::current_stream(static_cast<c10::DeviceIndex>(what.device)).id(),
                         std::current_exception());
    }
  });
}

CpuAliases::StoragePair& CpuAliases::storage_pair(const c10::Storage& device_storage,
                                                  Access access) {
  const bool unshare =
      access == Access::kWrite && c10::impl::cow::is_cow_data_ptr(device_storage.data_ptr());
  if (unshare) {
    device_storage.mutable_data();
    wait_for_device_again(device_);  // the copy is queued
  }
  auto* memory = AddressSpace::get().aperture(device_storage.data());
  const auto data = [&] {
    return c10::DataPtr(memory, new c10::Storage(device_storage), &release_storage,
                        c10::Device(c10::kCPU));
  };
  for (auto& pair : storages_) {
    if (!pair.device.is_alias_of(device_storage)) continue;
    if (unshare) {  // it has only been read so far
      pair.cpu.set_data_ptr_noswap(data());
      pair.memory = memory;
    }
    return pair;
  }
  c10::Storage cpu(c10::Storage::use_byte_size_t(), device_storage.nbytes(), data(),
                   c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({device_storage, std::move(cpu), memory});
  return storages_.back();
}

at::Tensor CpuAliases::alias(const at::Tensor& tensor, Access access,
                             std::optional<Access> declared) {
  auto parts = parts_of(tensor);
  for (auto& part : parts) part = alias(part, access, declared);
  c10::Storage storage;
  if (tensor.layout() == at::kStrided) {  // others have parts
    expect_memory(tensor);                // raises if PyTorch has taken the storage away
    if (op_) {
      note_host_access(op_, tensor, declared.value_or(access) == Access::kWrite, place_, zeros_);
      ++place_.element;
    }
    storage = storage_pair(tensor.storage(), access).cpu;
  }
  for (const auto& pair : tensors_) {
    if (pair.device.is_same(tensor)) return pair.cpu;
  }
  auto cpu = rebuild(tensor, std::move(storage), parts, c10::BackendComponent::CPUBit);
  cpu.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(
      tensor.unsafeGetTensorImpl()->allow_tensor_metadata_change());
  // Kernels check whether they must return what only the gradient needs (sparse.mm's reductions).
  if (tensor.requires_grad()) cpu.set_requires_grad(true);
  tensors_.push_back({tensor, cpu});
  return cpu;
}

void CpuAliases::copy_to_device(const c10::Storage& cpu, const c10::Storage& device) const {
  // The device memory has just been taken from the stream's free list. Commands that another thread
  // has queued may still read its previous contents, so they must run first.
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

void CpuAliases::check_accesses() { check_accesses_of_host(work_); }

void CpuAliases::copy_back() {
  check_accesses();
  for (auto& [device, cpu] : tensors_) {  // first, because it changes elements
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
  // A tensor's parts come before it in the list, so their storages have been converted when it
  // needs them.
  for (auto& [device, cpu] : tensors_) {
    auto parts = parts_of(cpu);
    for (auto& part : parts) part = to_device(part);
    if (cpu.has_storage()) {
      const auto storage = device_storage(cpu.storage());
      if (!storage.is_alias_of(device.storage())) {
        device.unsafeGetTensorImpl()->set_storage_and_dtype(storage, cpu.dtype());
      }
    }
    take_over(device, cpu, parts);
  }
}

at::Tensor CpuAliases::to_device(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const auto& pair : tensors_) {
    if (pair.cpu.is_same(result)) return pair.device;
  }
  auto parts = parts_of(result);
  for (auto& part : parts) part = to_device(part);
  auto storage = result.has_storage() ? device_storage(result.storage()) : c10::Storage();
  return rebuild(result, std::move(storage), parts, backend::kBackendBit);
}

}  // namespace openreg::ops
