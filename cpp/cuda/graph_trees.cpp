#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "cuda/memory_bindings.h"
#include "memory/checkpoint.h"
#include "memory/device_heap.h"
#include "slot.h"

namespace openreg::bindings {

namespace {

using Addresses = std::vector<std::uintptr_t>;

c10::StorageImpl& storage_at(std::uintptr_t address) {
  return *reinterpret_cast<c10::StorageImpl*>(address);
}

memory::DeviceHeap& memory_of_device(int device) {
  return memory::device_heap(backend::resolve_device(static_cast<c10::DeviceIndex>(device)));
}

// --- Pools ---

memory::Checkpoint checkpoint_pool(int device, memory::PoolId pool) {
  return memory_of_device(device).locked([&](memory::Heap& heap) { return heap.checkpoint(pool); });
}

bool pool_holds_exactly(int device, memory::PoolId pool, Addresses addresses) {
  std::ranges::sort(addresses);
  return std::ranges::equal(
      checkpoint_pool(device, pool).blocks, addresses, {},
      [](const auto& block) { return reinterpret_cast<std::uintptr_t>(block.address); });
}

bool records_memory_history() {
  return memory_of_device(0).locked([](memory::Heap& heap) { return heap.history().enabled(); });
}

// --- Storages ---

/// Whether the memory is returned to the allocator when the storage is destroyed.
bool owns_memory(std::uintptr_t storage) {
  return storage_at(storage).data_ptr().get_deleter() == backend::device_allocator().raw_deleter();
}

void free_memory(std::uintptr_t storage) {
  auto& data = storage_at(storage)._mutable_data_ptr_no_checks();
  void* const address = data.get();
  TORCH_CHECK(data.compare_exchange_deleter(backend::device_allocator().raw_deleter(),
                                            &c10::detail::deleteNothing),
              "openreg: the storage does not own memory of the allocator");
  backend::deallocate_raw(address);
}

/// Makes the program hold the blocks of the checkpoint again. Of these `owners` own theirs
/// afterwards; the program frees the others by their addresses. `stale` storages lose their memory.
void return_to_checkpoint(int device, const memory::Checkpoint& checkpoint, const Addresses& stale,
                          const Addresses& owners) {
  for (const auto storage : stale) {
    if (owns_memory(storage)) free_memory(storage);
  }
  backend::translate_errors([&] { memory_of_device(device).restore_checkpoint(checkpoint); });
  std::set<void*> without_owner;
  for (const auto& block : checkpoint.blocks) without_owner.insert(block.address);
  for (const auto owner : owners) {
    auto& storage = storage_at(owner);
    void* const address = storage._mutable_data_ptr_no_checks().get();
    if (without_owner.erase(address) == 0) continue;  // another storage of the same memory owns it
    TORCH_CHECK(storage.data_ptr().get_context() == nullptr,
                "openreg: a storage in the restored memory pool owns memory already");
    storage.set_data_ptr_noswap(
        {address, address, backend::device_allocator().raw_deleter(), storage.device()});
  }
}

// --- Tensors ---

nb::object tensor_on_storage(const nb::dict& metadata, nb::handle storage) {
  const auto dtype = reinterpret_cast<THPDtype*>(metadata["dtype"].ptr())->scalar_type;
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(THPStorage_Unpack(storage.ptr())), c10::DispatchKeySet(backend::kDispatchKey),
      c10::scalarTypeToTypeMeta(dtype));
  auto& impl = *tensor.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(nb::cast<std::vector<std::int64_t>>(metadata["size"]),
                             nb::cast<std::vector<std::int64_t>>(metadata["stride"]));
  impl.set_storage_offset(nb::cast<std::int64_t>(metadata["storage_offset"]));
  return nb::steal(THPVariable_Wrap(std::move(tensor)));
}

// Called at each replay.
bool have_addresses(const nb::list& tensors, const nb::list& addresses, const nb::list& indices) {
  for (const nb::handle index : indices) {
    const auto i = nb::cast<std::size_t>(index);
    const nb::object value = tensors[i];
    const nb::object address = addresses[i];
    if (address.is_none()) continue;
    if (!THPVariable_Check(value.ptr())) {
      if (!value.equal(address)) return false;
      continue;
    }
    const void* const data = THPVariable_Unpack(value.ptr()).const_data_ptr();
    if (reinterpret_cast<std::uintptr_t>(data) != nb::cast<std::uintptr_t>(address)) return false;
  }
  return true;
}

void forbid_storage(nb::handle tensor, std::string message) {
  THPVariable_Unpack(tensor.ptr())
      .unsafeGetTensorImpl()
      ->release_storage_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

void forbid_data(std::uintptr_t storage, std::string message) {
  storage_at(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

}  // namespace

void init_graph_trees(nb::module_& m) {
  // NOLINTNEXTLINE(bugprone-unused-raii): a class without methods
  nb::class_<memory::Checkpoint>(m, "Checkpoint", "The blocks of a pool in use at one time.");
  m.def("checkpoint_pool", &checkpoint_pool, nb::arg("device"), nb::arg("pool"), ReleaseGil());
  m.def("return_to_checkpoint", &return_to_checkpoint, nb::arg("device"), nb::arg("checkpoint"),
        nb::arg("stale"), nb::arg("owners"), ReleaseGil());
  m.def("pool_holds_exactly", &pool_holds_exactly, nb::arg("device"), nb::arg("pool"),
        nb::arg("addresses"), ReleaseGil(), "Whether these are all blocks in use.");
  m.def("records_memory_history", &records_memory_history, ReleaseGil());
  m.def("owns_memory", &owns_memory, nb::arg("storage"));
  m.def("free_memory", &free_memory, nb::arg("storage"), ReleaseGil());
  m.def("tensor_on_storage", &tensor_on_storage, nb::arg("metadata"), nb::arg("storage"));
  m.def("have_addresses", &have_addresses, nb::arg("tensors"), nb::arg("addresses"),
        nb::arg("indices"));
  m.def("forbid_storage", &forbid_storage, nb::arg("tensor"), nb::arg("message"),
        "From now on accesses to the tensor's storage raise an error with this message.");
  m.def("forbid_data", &forbid_data, nb::arg("storage"), nb::arg("message"));
}

}  // namespace openreg::bindings
