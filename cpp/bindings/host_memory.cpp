#include <ATen/Context.h>

#include <cstdint>

#include "backend/host_allocator.h"
#include "bindings/bindings.h"
#include "slot.h"

namespace openreg::bindings {

namespace {

nb::dict duration_dict(const c10::CachingAllocator::DurationStat& stat) {
  nb::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return result;
}

// With the names of torch.cuda.host_memory_stats.
nb::dict host_memory_stats() {
  nb::dict result;
  const auto stats = [] {
    const nb::gil_scoped_release release;
    return backend::host_memory_stats();
  }();
  if (!stats) return result;
  const at::HostStats& blocks = stats->blocks;
  result["allocations"] = stat_dict(blocks.allocations);
  result["allocated_bytes"] = stat_dict(blocks.allocated_bytes);
  result["active_requests"] = stat_dict(blocks.active_requests);
  result["active_bytes"] = stat_dict(blocks.active_bytes);
  result["num_host_alloc"] = blocks.num_host_alloc;
  result["num_host_free"] = blocks.num_host_free;
  result["host_alloc_time"] = duration_dict(blocks.host_alloc_time);
  result["host_free_time"] = duration_dict(blocks.host_free_time);
  result["locked_bytes"] = stat_dict(stats->locked_bytes);
  return result;
}

}  // namespace

void init_host_memory(nb::module_& m) {
  m.def("host_memory_stats", &host_memory_stats, "Statistics of pinned memory; {} before its use.");
  m.def(
      "register_pinned_memory",
      [](std::uintptr_t address, std::size_t bytes) {
        // Until then, PyTorch takes no memory for pinned: a stream does not initialise the device.
        at::globalContext().lazyInitDevice(backend::kDeviceType);
        backend::register_pinned(reinterpret_cast<void*>(address), bytes);
      },
      nb::arg("address"), nb::arg("bytes"), ReleaseGil(),
      "Pins memory of the program, which must stay until unregister_pinned_memory().");
  m.def(
      "unregister_pinned_memory",
      [](std::uintptr_t address) { backend::unregister_pinned(reinterpret_cast<void*>(address)); },
      nb::arg("address"), ReleaseGil(), "Waits for the devices.");
  m.def(
      "reset_accumulated_host_memory_stats",
      [] { backend::host_allocator().reset_accumulated_stats(); }, ReleaseGil());
  m.def(
      "reset_peak_host_memory_stats", [] { backend::host_allocator().reset_peak_stats(); },
      ReleaseGil());
}

}  // namespace openreg::bindings
