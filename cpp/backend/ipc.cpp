#include "backend/ipc.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/exception.h"
#include "backend/ipc_imports.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "memory/device_heap.h"
#include "runtime/device_health.h"
#include "runtime/fault_table.h"
#include "runtime/process.h"
#include "runtime/stream.h"
#include "slot.h"

namespace openreg::backend {

namespace {

// The blocks of this process that have been sent and that others may still use.
struct Exports {
  Mutex mutex;
  // By address: the number of storages in this process that own the block. 0: it is freed when
  // others have released it.
  std::map<void*, int> owners OPENREG_GUARDED_BY(mutex);
  std::atomic<bool> any{false};  // a block has been sent
};

// Leaked: tensors may outlive static destruction.
Exports& exports() {
  static auto& all = *new Exports;
  return all;
}

std::size_t offset_of(const void* address, int device) {
  return reinterpret_cast<std::uintptr_t>(address) - AddressSpace::get().window_begin(device);
}

bool retire(const void* address) {
  const auto& space = AddressSpace::get();
  const int device = space.device_of(address);
  return space.shared_file(device)->retire(offset_of(address, device));
}

bool collect_for_heap(int) {
  return exports().any.load(std::memory_order_relaxed) && collect_shared();
}

std::uint32_t send_block(void* address, IpcFile& file, std::size_t offset) {
  const LockGuard lock(exports().mutex);
  if (!exports().any.exchange(true)) memory::set_free_memory_callback(&collect_for_heap);
  exports().owners.try_emplace(address, 1);
  return file.send(offset);
}

// For a handle of this process, which gets another reference to the block itself.
c10::DataPtr own_block(const IpcHandle& handle) {
  auto& space = AddressSpace::get();
  void* const address = reinterpret_cast<void*>(space.window_begin(handle.device) + handle.offset);
  const LockGuard lock(exports().mutex);
  const auto found = exports().owners.find(address);
  if (found == exports().owners.end() ||
      !space.shared_file(handle.device)->receive(handle.offset, handle.generation))
    refuse_second_reading();
  ++found->second;
  return {address, address, device_allocator().raw_deleter(),
          c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(handle.device))};
}

bool is_own(const IpcHandle& handle) {
  const auto& space = AddressSpace::get();
  const auto* const file = space.shared_file(handle.device);
  return file != nullptr && file->name().token == handle.file.token;
}

// Whether `storage` has the block. If so, the message counts as received.
bool has_block(const c10::Storage& storage, const IpcHandle& handle) {
  const auto& data = storage.data_ptr();
  if (storage.nbytes() < handle.bytes) return false;
  if (is_own(handle)) {
    return offset_of(data.get(), handle.device) == handle.offset &&
           AddressSpace::get()
               .shared_file(handle.device)
               ->receive(handle.offset, handle.generation);
  }
  const auto [file, offset] = imported_from(data);
  return file != nullptr && file->name().token == handle.file.token && offset == handle.offset &&
         file->receive(offset, handle.generation);
}

}  // namespace

IpcHandle share_storage(const c10::Storage& storage) {
  const int device = storage.device().index();
  TORCH_CHECK(
      computes(), "openreg: tensors of ", storage.device(),
      " cannot be sent to another process while devices do not compute, because their memory "
      "has no contents to share; send tensor.cpu(), or the sizes");
  translate_errors([&] {
    check_usable();
    check_healthy(device);
  });
  void* const address = storage.mutable_data();  // a lazy clone gets its own memory
  const auto& data = storage.data_ptr();
  translate_errors([&] { drain_device(device); });
  IpcHandle handle;
  handle.device = device;
  handle.bytes = storage.nbytes();
  if (const auto [file, offset] = imported_from(data); file != nullptr) {
    handle.file = file->name();
    handle.offset = offset;
    handle.generation = file->send(offset);
    return handle;
  }
  TORCH_CHECK(data.get_deleter() == device_allocator().raw_deleter(), "openreg: memory of ",
              storage.device(),
              " that was not allocated by the device's "
              "allocator cannot be shared with another process; send tensor.clone()");
  collect_shared();
  translate_errors([&] {
    auto& file = AddressSpace::get().share(address, storage.nbytes());
    handle.file = file.name();
    handle.offset = offset_of(address, device);
    handle.generation = send_block(address, file, handle.offset);
  });
  return handle;
}

c10::Storage receive_storage(const IpcHandle& handle, const c10::Storage* known) {
  translate_errors([] {
    check_usable();
    AddressSpace::get();
    faults::start();
  });
  const int devices = AddressSpace::get().devices();
  TORCH_CHECK(handle.device < devices, "openreg: a tensor of ", device_name(handle.device),
              " was received, but this process has devices 0 to ", devices - 1,
              " only; give it as many as the sender (TORCH_OPENREG_DEVICES)");
  translate_errors([&] {
    check_healthy(handle.device);
    if (const auto refusal =
            faults::count_and_describe({.point = FaultPoint::kIpc, .device = handle.device}))
      throw InjectedError("openreg: memory of another process could not be opened: " + *refusal);
  });
  if (known != nullptr && has_block(*known, handle)) return *known;
  auto data = translate_errors([&] {
    return is_own(handle) ? own_block(handle)
                          : import_block(handle.file, handle.device, handle.offset, handle.bytes,
                                         handle.generation);
  });
  const bool resizable = data.get_deleter() == device_allocator().raw_deleter();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), handle.bytes,
                                               std::move(data), &device_allocator(), resizable);
}

void withdraw_message(const IpcHandle& handle) {
  if (is_own(handle)) {
    AddressSpace::get().shared_file(handle.device)->receive(handle.offset, handle.generation);
    collect_shared();
  } else {
    withdraw_from_owner(handle.file, handle.offset, handle.generation);
  }
}

bool is_kept_for_others(void* address) {
  auto& all = exports();
  if (!all.any.load(std::memory_order_relaxed)) return false;
  const LockGuard lock(all.mutex);
  const auto found = all.owners.find(address);
  if (found == all.owners.end()) return false;
  if (--found->second > 0 || !retire(address)) return true;
  all.owners.erase(found);
  return false;
}

bool collect_shared() {
  std::vector<void*> unused;
  {
    const LockGuard lock(exports().mutex);
    std::erase_if(exports().owners, [&](const auto& entry) {
      const auto [address, owners] = entry;
      if (owners > 0 || !retire(address)) return false;
      unused.push_back(address);
      return true;
    });
  }
  for (void* const address : unused) deallocate_raw(address);
  return !unused.empty();
}

std::vector<const void*> blocks_kept_for_others() {
  std::vector<const void*> kept;
  const LockGuard lock(exports().mutex);
  for (const auto& [address, owners] : exports().owners) {
    if (owners == 0) kept.push_back(address);
  }
  return kept;
}

void collect_shared_and_received() {
  if (AddressSpace::get_if_reserved() == nullptr) return;
  translate_errors([] {
    check_usable();
    release_imports();
  });
  collect_shared();
}

}  // namespace openreg::backend
