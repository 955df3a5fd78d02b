#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <torch/csrc/Exceptions.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/stream.h"
#include "base/quantity.h"
#include "bindings/bindings.h"
#include "memory/debugger.h"
#include "memory/device_heap.h"
#include "runtime/process.h"

namespace openreg::bindings {

namespace {

memory::DeviceHeap& heap_of(int device) {
  return memory::device_heap(backend::resolve_device(static_cast<c10::DeviceIndex>(device)));
}

// --- Memory without a tensor ---

std::uintptr_t raw_allocate(std::size_t bytes, int device, std::optional<std::int64_t> stream) {
  return backend::translate_errors([&] {
    const auto index = backend::resolve_device(static_cast<c10::DeviceIndex>(device));
    auto& where = stream ? find_stream(index, *stream) : backend::current_stream(index);
    return reinterpret_cast<std::uintptr_t>(backend::allocate_raw(bytes, where));
  });
}

void raw_delete(std::uintptr_t address) {
  backend::deallocate_raw(reinterpret_cast<void*>(address));
}

// --- Pools ---

memory::PoolId make_pool(int device, bool use_on_oom, bool no_split) {
  const auto id = memory::new_pool_id(/*of_graph=*/false);
  heap_of(device).locked([&](memory::Heap& heap) {
    heap.add_use(id);
    heap.set_use_on_oom(id, use_on_oom);
    heap.set_no_split(id, no_split);
  });
  return id;
}

// Unused memory is returned on all devices, because use_mem_pool() takes any device.
void release_pool(int device, memory::PoolId id) {
  if (in_bad_fork() || is_shut_down()) return;
  heap_of(device).locked([&](memory::Heap& heap) { heap.remove_use(id); });
  backend::translate_errors([&] {
    for (int i = 0; i < AddressSpace::get().devices(); ++i) {
      auto& heap = memory::device_heap(i);
      // Returning memory waits for the device, so it is skipped if there is none.
      if (!heap.locked([&](memory::Heap& of) { return of.segments(&id).empty(); }))
        heap.empty_cache(id);
    }
  });
}

int pool_uses(int device, memory::PoolId id) {
  return heap_of(device).locked([&](memory::Heap& heap) { return heap.uses(id); });
}

int begin_pool_use(int device, memory::PoolId id) {
  const auto is_this_thread = [thread = std::this_thread::get_id()](const Stream&) {
    return std::this_thread::get_id() == thread;
  };
  return heap_of(device).locked(
      [&](memory::Heap& heap) { return heap.add_route(id, is_this_thread); });
}

void end_pool_use(int device, int route) {
  if (in_bad_fork()) return;
  heap_of(device).locked([&](memory::Heap& heap) { heap.remove_route(route); });
}

// --- Statistics that PyTorch does not expose ---

nb::dict reserved_by_private_pools(int device) {
  const auto counters =
      heap_of(device).locked([](memory::Heap& heap) { return heap.reserved_by_private_pools(); });
  nb::dict result;
  for (const auto& [pool, counter] : counters) {
    nb::dict of_pool;
    of_pool["all"] = stat_dict(counter.all());
    of_pool["small_pool"] = stat_dict(counter.of(memory::SizeClass::kSmall));
    of_pool["large_pool"] = stat_dict(counter.of(memory::SizeClass::kLarge));
    result[nb::cast(pool)] = of_pool;
  }
  return result;
}

// --- Peaks of a part of the program ---

std::pair<std::int64_t, std::int64_t> pair_of(memory::Peak peak) {
  return {peak.allocated, peak.reserved};
}

int begin_peak(int device) {
  return heap_of(device).locked([](memory::Heap& heap) { return heap.statistics().begin_scope(); });
}

std::pair<std::int64_t, std::int64_t> peak_of(int device, int scope) {
  return heap_of(device).locked(
      [&](memory::Heap& heap) { return pair_of(heap.statistics().peak_of_scope(scope)); });
}

std::pair<std::int64_t, std::int64_t> end_peak(int device, int scope) {
  return heap_of(device).locked(
      [&](memory::Heap& heap) { return pair_of(heap.statistics().end_scope(scope)); });
}

// --- Out of memory ---

// Set once, under the GIL, and leaked, because threads allocate until the process ends.
nb::object* g_out_of_memory_hook = nullptr;

bool call_out_of_memory_hook(int device, std::size_t bytes) {
  if (!Py_IsInitialized()) return false;
  const nb::gil_scoped_acquire gil;
  try {
    return nb::cast<bool>((*g_out_of_memory_hook)(device, bytes));
  } catch (nb::python_error& error) {
    error.restore();
  }
  python_error raised;
  raised.persist();
  throw raised;
}

void set_out_of_memory_hook(nb::object hook) {
  if (g_out_of_memory_hook == nullptr) g_out_of_memory_hook = new nb::object(std::move(hook));
  backend::set_out_of_memory_hook(&call_out_of_memory_hook);
}

}  // namespace

void init_memory(nb::module_& m) {
  m.def(
      "raw_allocate", &raw_allocate, nb::arg("bytes"), nb::arg("device"), nb::arg("stream").none(),
      ReleaseGil(),
      "Returns the address of memory for work on the stream with this id, or on the current one.");
  m.def("raw_delete", &raw_delete, nb::arg("address"), ReleaseGil());
  m.def(
      "set_memory_fraction",
      [](int device, double fraction) { heap_of(device).set_fraction(fraction); },
      nb::arg("device"), nb::arg("fraction"), ReleaseGil());
  m.def(
      "get_memory_fraction", [](int device) { return heap_of(device).fraction(); },
      nb::arg("device"), ReleaseGil());
  m.def("use_cuda_segments", &backend::use_cuda_segments, nb::arg("use"), ReleaseGil(),
        "Whether the allocator follows the rules of CUDA's. No device may have memory.");
  m.def("make_pool", &make_pool, nb::arg("device"), nb::arg("use_on_oom"), nb::arg("no_split"),
        ReleaseGil(), "Makes a private pool, which has one use, and returns its id.");
  m.def(
      "release_pool", &release_pool, nb::arg("device"), nb::arg("pool"), ReleaseGil(),
      "Ends the use that make_pool() began, and returns unused memory of the pool to the device.");
  m.def("pool_uses", &pool_uses, nb::arg("device"), nb::arg("pool"), ReleaseGil());
  m.def("begin_pool_use", &begin_pool_use, nb::arg("device"), nb::arg("pool"), ReleaseGil(),
        "From now on the calling thread's allocations come from the pool. Returns the argument of "
        "end_pool_use().");
  m.def("end_pool_use", &end_pool_use, nb::arg("device"), nb::arg("use"), ReleaseGil());
  m.def("begin_peak", &begin_peak, nb::arg("device"), ReleaseGil(),
        "Begins a scope whose peak is measured. Returns the argument of peak_of() and end_peak().");
  m.def("peak_of", &peak_of, nb::arg("device"), nb::arg("scope"), ReleaseGil(),
        "Peak bytes in use by tensors and reserved by the allocator, in the scope so far.");
  m.def("end_peak", &end_peak, nb::arg("device"), nb::arg("scope"), ReleaseGil(),
        "Ends the scope and returns its peak, as peak_of() does.");
  m.def("set_out_of_memory_hook", &set_out_of_memory_hook, nb::arg("hook"),
        "hook(device, bytes) is called before out of memory is raised; if it returns True, the "
        "allocation is tried again. A second call has no effect.");
  m.def("format_size", &format_size, nb::arg("bytes"),
        "The text of a size, as in all messages: \"20.00 MiB\".");
  m.def("reserved_by_private_pools", &reserved_by_private_pools, nb::arg("device"));
  m.def(
      "debugs_memory", [] { return memory::Debugger::get() != nullptr; },
      "Whether errors in the use of memory are detected (TORCH_OPENREG_DEBUG_MEMORY).");
  m.def(
      "forget_block",
      [](std::uintptr_t address) {
        memory::Debugger::get()->abandoned(reinterpret_cast<const void*>(address));
      },
      nb::arg("address"), ReleaseGil(),
      "The block that begins at this address, if any, does not count as a leak.");
}

}  // namespace openreg::bindings
