#include "backend/allocator.h"

#include <c10/core/impl/COW.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/ipc.h"
#include "backend/memory_history.h"
#include "backend/race_detection.h"
#include "backend/storage.h"
#include "backend/stream.h"
#include "base/device_name.h"
#include "base/once.h"
#include "base/quantity.h"
#include "memory/command_check.h"
#include "memory/debugger.h"
#include "memory/value_tracker.h"
#include "runtime/device_health.h"
#include "runtime/fault_table.h"
#include "runtime/process.h"
#include "runtime/stream.h"
#include "slot.h"
#include "slot_trace.h"

namespace openreg::backend {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

c10::Device torch_device(int index) { return {kDeviceType, static_cast<c10::DeviceIndex>(index)}; }

Stat to_stat(const memory::Stat& from) {
  Stat stat;
  stat.current = from.current;
  stat.peak = from.peak;
  stat.allocated = from.allocated;
  stat.freed = from.freed;
  return stat;
}

StatArray to_stats(const memory::ClassStat& from) {
  StatArray array;
  array[static_cast<std::size_t>(StatType::AGGREGATE)] = to_stat(from.all());
  array[static_cast<std::size_t>(StatType::SMALL_POOL)] =
      to_stat(from.of(memory::SizeClass::kSmall));
  array[static_cast<std::size_t>(StatType::LARGE_POOL)] =
      to_stat(from.of(memory::SizeClass::kLarge));
  return array;
}

// Called under the heap's lock.
c10::CachingDeviceAllocator::DeviceStats device_stats(memory::Heap& heap) {
  const auto& from = heap.statistics();
  const auto max_split = heap.policy().max_split_bytes;
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocation = to_stats(from.allocation);
  stats.segment = to_stats(from.segment);
  stats.active = to_stats(from.active);
  stats.inactive_split = to_stats(from.inactive_split);
  stats.allocated_bytes = to_stats(from.allocated_bytes);
  stats.reserved_bytes = to_stats(from.reserved_bytes);
  for (const auto& [pool, bytes] : heap.reserved_by_private_pools())
    stats.reserved_bytes_by_private_pools[pool] = to_stats(bytes);
  stats.active_bytes = to_stats(from.active_bytes);
  stats.inactive_split_bytes = to_stats(from.inactive_split_bytes);
  stats.requested_bytes = to_stats(from.requested_bytes);
  stats.num_alloc_retries = from.retries;
  stats.num_ooms = from.out_of_memory;
  stats.oversize_allocations = to_stat(from.oversize_allocations.all());
  stats.oversize_segments = to_stat(from.oversize_segments.all());
  stats.num_sync_all_streams = from.synchronizations;
  stats.num_device_alloc = from.device_maps;
  stats.num_device_free = from.device_unmaps;
  // -1: no limit, as CUDA reports it.
  stats.max_split_size = max_split > INT64_MAX ? -1 : static_cast<std::int64_t>(max_split);
  return stats;
}

std::string advice(memory::DeviceHeap::Shortage of, bool has_fraction) {
  using enum memory::DeviceHeap::Shortage;
  if (of == kMachine)
    return "The limit is the memory of the machine or of the process's control group, not the "
           "device's size: free tensors, use smaller batches, or end other programs";
  if (of == kSystem)
    return "A limit of the operating system is reached (`ulimit -d`, vm.overcommit_memory or "
           "vm.max_map_count): free tensors, or raise that limit";
  return std::string("Free tensors, use smaller batches, or raise TORCH_OPENREG_MEMORY") +
         (has_fraction ? " or the fraction set by set_per_process_memory_fraction" : "");
}

// `injected` describes the injected fault; empty: it is a real failure.
[[noreturn]] void throw_out_of_memory(std::size_t bytes, int device,
                                      const memory::DeviceHeap::Allocation& failed,
                                      const std::string& injected) {
  const auto& usage = failed.usage;
  const std::size_t capacity = AddressSpace::get().capacity();
  c10::reportOutOfMemoryToProfiler(usage.bytes, usage.allocated, usage.reserved,
                                   torch_device(device));
  const MemoryShortage shortage{
      .device = device,
      .wanted = failed.segment != 0 ? failed.segment : bytes,
      .capacity = capacity,
      .limit = failed.limit,
      .allocated = static_cast<std::size_t>(usage.allocated),
      .cached = static_cast<std::size_t>(usage.reserved - usage.allocated),
      .free = static_cast<std::size_t>(failed.free)};
  TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory(shortage), " ",
                   advice(failed.of, failed.limit < capacity), "; see ", kModule,
                   ".memory_summary()", injected.empty() ? "" : "; ", injected);
}

std::atomic<OutOfMemoryHook> g_hook{nullptr};

bool hook_made_room(int device, std::size_t bytes) {
  thread_local bool within = false;
  if (within) return false;
  const auto hook = g_hook.load(std::memory_order_acquire);
  if (hook == nullptr) return false;
  within = true;
  const auto leave = c10::make_scope_exit([] { within = false; });
  return hook(device, bytes);
}

// A tensor may be destroyed in a forked child, or after shutdown: its memory is then left to the
// parent or the system. Checked before any lock is taken, as another thread may have held it when
// the process forked.
bool may_free() noexcept { return !in_bad_fork() && !is_shut_down(); }

void free_block(void* address) {
  if (is_kept_for_others(address)) return;
  // For an address that is not device memory, the first device's heap reports the error.
  const auto* space = AddressSpace::get_if_reserved();
  const int device = space == nullptr ? 0 : std::max(space->device_of(address), 0);
  auto& heap = memory::device_heap(device);
  trace_call([&](const auto& to) {
    to.trace_gpu_memory_deallocation(kDeviceType, reinterpret_cast<std::uintptr_t>(address));
  });
  const auto usage = memory::checks::free(heap, address, &python_stack, context_of_free());
  c10::reportMemoryUsageToProfiler(address, usage.bytes, usage.allocated, usage.reserved,
                                   torch_device(device));
}

/// Memory that can no longer be returned when its tensor is destroyed is not a leak.
void forget(void* address) {
  if (!in_bad_fork()) memory::checks::notify(&memory::CommandCheck::abandoned, address);
}

void delete_device_block(void* address) {
  if (address == nullptr) return;
  if (!may_free()) return forget(address);
  try {
    free_block(address);
  } catch (const std::exception& e) {
    TORCH_WARN_ONCE("openreg: memory was not reused because freeing it failed: ", e.what());
  }
}

// The first use of device memory, which may be an empty tensor.
void prepare() {
  static const Once once([] {
    AddressSpace::get();
    follow_allocator_settings();
    memory::ValueTracker::start_if_enabled();
    faults::start();
    memory::Debugger::start_if_enabled();
    start_race_detection_if_enabled();
  });
}

// PyTorch's view of the heaps (cpp/memory). allocate(), raw_deleter() and copy_data() are what
// tensors need of any c10::Allocator; the rest is c10::DeviceAllocator's, for torch.accelerator's
// memory functions. Memory is given out in stream order: a freed block is reused at once by later
// work of its stream, without a wait, and recordStream() names further streams that use it.
class Allocator final : public c10::DeviceAllocator {
 public:
  // PyTorch passes neither device nor stream: the caller has made the device current, and the
  // memory is for work of its current stream.
  c10::DataPtr allocate(std::size_t bytes) override {
    return allocate_for(current_stream(), bytes);
  }

  // One function for all pointers, with the address as context, so that raw_allocate() and
  // raw_deallocate() work.
  c10::DeleterFnPtr raw_deleter() const override { return &delete_device_block; }

  // For copy-on-write storages that are written to. Runs in order on the current stream.
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    copy_bytes(to, from, bytes);
  }

  bool initialized() override { return is_initialized(); }

  void emptyCache(c10::MempoolId_t pool) override {
    if (AddressSpace::get_if_reserved() == nullptr) return;
    translate_errors([&] {
      const int devices = AddressSpace::get().devices();
      for (int device = 0; device < devices; ++device) {
        if (health_of(device) == Health::kHealthy) memory::device_heap(device).empty_cache(pool);
      }
      for (int device = 0; device < devices; ++device) check_healthy(device);
    });
  }

  // Implements both torch.Tensor.record_stream and the guard's recordDataPtrOnStream.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // Memory that storages share until one of them is written to has another context, which its
    // owners have in common.
    const bool ours =
        data.get_deleter() == &delete_device_block || c10::impl::cow::is_cow_data_ptr(data);
    void* const address = data.get();
    if (address == nullptr || !ours) return;  // empty, or not ours to reuse
    auto& user = to_runtime(stream);
    auto& heap = memory::device_heap(data.device().index());
    translate_errors([&] { memory::checks::record_stream(heap, address, user); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return memory::device_heap(resolve_device(device)).locked([](memory::Heap& heap) {
      return device_stats(heap);
    });
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    memory::device_heap(resolve_device(device)).locked([](memory::Heap& heap) {
      heap.statistics().reset_accumulated();
      for (auto& [pool, bytes] : heap.reserved_by_private_pools()) bytes.reset_accumulated();
    });
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    memory::device_heap(resolve_device(device)).locked([](memory::Heap& heap) {
      heap.statistics().reset_peak();
      for (auto& [pool, bytes] : heap.reserved_by_private_pools()) bytes.reset_peak();
    });
  }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto index = resolve_device(device);
    return translate_errors([&]() -> std::pair<std::size_t, std::size_t> {
      check_healthy(index);
      const auto& space = AddressSpace::get();
      return {space.capacity() - space.mapped(index), space.capacity()};
    });
  }
};

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto& allocator = *new Allocator;
  return allocator;
}

c10::DataPtr allocate_for(openreg::Stream& stream, std::size_t bytes) {
  void* const address = allocate_raw(bytes, stream);
  return {address, address, &delete_device_block, torch_device(stream.device())};
}

void* allocate_raw(std::size_t bytes, openreg::Stream& stream) {
  translate_errors([] {
    check_usable();
    prepare();
  });
  if (bytes == 0) return nullptr;
  std::string injected;
  const auto attempt = [&] {
    return translate_errors([&] {
      check_healthy(stream.device());
      auto& heap = memory::device_heap(stream.device());
      return memory::checks::allocate(heap, bytes, stream, &python_stack, context_of_allocation(),
                                      injected);
    });
  };
  auto result = attempt();
  while (result.address == nullptr && hook_made_room(stream.device(), bytes)) result = attempt();
  if (result.address == nullptr) throw_out_of_memory(bytes, stream.device(), result, injected);
  trace_call([&](const auto& to) {
    to.trace_gpu_memory_allocation(kDeviceType, reinterpret_cast<std::uintptr_t>(result.address));
  });
  const auto& usage = result.usage;
  c10::reportMemoryUsageToProfiler(result.address, usage.bytes, usage.allocated, usage.reserved,
                                   torch_device(stream.device()));
  return result.address;
}

void set_out_of_memory_hook(OutOfMemoryHook hook) noexcept {
  g_hook.store(hook, std::memory_order_release);
}

std::vector<openreg::Stream*> streams_of(const void* address) {
  auto& heap = memory::device_heap(AddressSpace::get().device_of(address));
  return heap.streams_of(memory::checks::block_of(address));
}

void deallocate_raw(void* address) {
  if (address == nullptr) return;
  if (!may_free()) return forget(address);
  translate_errors([&] { free_block(address); });
}

}  // namespace openreg::backend
