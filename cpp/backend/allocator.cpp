#include "backend/allocator.h"

#include <c10/util/Exception.h>

#include "backend/device.h"
#include "backend/device_heap.h"
#include "backend/exception.h"
#include "backend/storage.h"
#include "backend/stream.h"
#include "runtime/address_space.h"
#include "runtime/process.h"

namespace openreg::backend {

namespace {

using c10::CachingAllocator::format_size;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

c10::Device torch_device(int index) { return {kDeviceType, static_cast<c10::DeviceIndex>(index)}; }

Stat to_torch(const Counter& counter) {
  Stat stat;
  stat.current = counter.current;
  stat.peak = counter.peak;
  stat.allocated = counter.allocated;
  stat.freed = counter.freed;
  return stat;
}

StatArray to_torch(const ClassCounter& counter) {
  StatArray array;
  array[static_cast<std::size_t>(StatType::AGGREGATE)] = to_torch(counter.all);
  array[static_cast<std::size_t>(StatType::SMALL_POOL)] = to_torch(counter.small);
  array[static_cast<std::size_t>(StatType::LARGE_POOL)] = to_torch(counter.large);
  return array;
}

c10::CachingDeviceAllocator::DeviceStats to_torch(const DeviceHeap::Statistics& from) {
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocation = to_torch(from.pool.allocation);
  stats.segment = to_torch(from.pool.segment);
  stats.active = to_torch(from.pool.active);
  stats.inactive_split = to_torch(from.pool.inactive_split);
  stats.allocated_bytes = to_torch(from.pool.allocated_bytes);
  stats.reserved_bytes = to_torch(from.pool.reserved_bytes);
  stats.active_bytes = to_torch(from.pool.active_bytes);
  stats.inactive_split_bytes = to_torch(from.pool.inactive_split_bytes);
  stats.requested_bytes = to_torch(from.pool.requested_bytes);
  stats.num_alloc_retries = from.retries;
  stats.num_ooms = from.out_of_memory;
  stats.num_sync_all_streams = from.synchronizations;
  stats.num_device_alloc = from.pool.device_maps;
  stats.num_device_free = from.pool.device_unmaps;
  stats.max_split_size = -1;  // no limit, as CUDA reports it
  return stats;
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes, int device,
                                      const DeviceHeap::Usage& usage) {
  const auto size = [](std::int64_t n) { return format_size(static_cast<std::uint64_t>(n)); };
  const auto& space = AddressSpace::get();
  const auto capacity = static_cast<std::int64_t>(space.capacity());
  c10::reportOutOfMemoryToProfiler(usage.bytes, usage.allocated, usage.reserved,
                                   torch_device(device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, "openreg: out of memory on openreg:", device,
                   " (tried to allocate ", size(static_cast<std::int64_t>(bytes)), " of ",
                   size(capacity), "; ", size(usage.allocated), " are in use by tensors, ",
                   size(usage.reserved - usage.allocated),
                   " are reserved but in pieces that do not fit, ",
                   size(capacity - static_cast<std::int64_t>(space.mapped(device))),
                   " are free). Free tensors, or raise TORCH_OPENREG_MEMORY");
}

// A tensor may go in a forked child, or after shutdown: its memory is the parent's, or the
// system's, to take back. Asked before any lock, which another thread may have held when the
// process forked.
bool may_free() noexcept { return !in_bad_fork() && !is_shut_down(); }

void delete_block(void* address) {
  if (address == nullptr || !may_free()) return;
  const int device = AddressSpace::get_if_reserved()->device_of(address);
  try {
    const auto usage = device_heap(device).free(address);
    c10::reportMemoryUsageToProfiler(address, usage.bytes, usage.allocated, usage.reserved,
                                     torch_device(device));
  } catch (const std::exception& e) {
    TORCH_WARN_ONCE("openreg: memory was not reused because freeing it failed: ", e.what());
  }
}

class Allocator final : public c10::DeviceAllocator {
 public:
  // PyTorch gives no device: whoever calls has set the current one.
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto device = torch_device(current_device());
    const auto [address, usage] = translate_errors([&]() -> DeviceHeap::Allocation {
      check_usable();
      AddressSpace::get();  // an empty tensor, too, is a first use
      if (bytes == 0) return {nullptr, {}};
      return device_heap(device.index()).allocate(bytes, current_stream(device.index()));
    });
    if (bytes == 0) return {nullptr, nullptr, &delete_block, device};
    if (address == nullptr) throw_out_of_memory(bytes, device.index(), usage);
    c10::reportMemoryUsageToProfiler(address, usage.bytes, usage.allocated, usage.reserved, device);
    return {address, address, &delete_block, device};
  }

  // One function for all pointers, and the context is the address: raw_allocate() and
  // raw_deallocate() work.
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  // Copy-on-write storages that are written to. In order on the current stream.
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    copy_bytes(to, from, bytes);
  }

  bool initialized() override { return AddressSpace::get_if_reserved() != nullptr; }

  void emptyCache(c10::MempoolId_t pool) override {
    TORCH_CHECK(pool == c10::MempoolId_t{},
                "openreg: private memory pools are not supported (got pool (", pool.first, ", ",
                pool.second, "), expected (0, 0))");
    if (!initialized()) return;
    translate_errors([] {
      for (int device = 0; device < AddressSpace::get().devices(); ++device)
        device_heap(device).empty_cache();
    });
  }

  // The one function behind torch.Tensor.record_stream and the guard's recordDataPtrOnStream.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get_context() == nullptr || data.get_deleter() != &delete_block)
      return;  // empty, or not ours to reuse
    auto& user = to_runtime(stream);
    translate_errors(
        [&] { device_heap(data.device().index()).record_stream(data.get_context(), user); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return to_torch(device_heap(resolve_device(device)).statistics());
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    device_heap(resolve_device(device)).reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    device_heap(resolve_device(device)).reset_peak();
  }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto index = resolve_device(device);
    return translate_errors([&]() -> std::pair<std::size_t, std::size_t> {
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

}  // namespace openreg::backend
