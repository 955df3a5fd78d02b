#include "backend/device_heap.h"

#include <array>
#include <memory>

#include "backend/thread_current.h"
#include "runtime/address_space.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace openreg::backend {

namespace {

class EventMark final : public Mark {
 public:
  explicit EventMark(Stream& stream) { event_.record(stream); }
  bool passed() const noexcept override { return event_.query(); }

 private:
  Event event_;
};

class RuntimeBacking final : public PoolBacking {
 public:
  explicit RuntimeBacking(int device) : device_(device) {}
  void* map(std::size_t bytes) override { return AddressSpace::get().map(device_, bytes); }
  void unmap(void* segment) noexcept override { AddressSpace::get_if_reserved()->unmap(segment); }
  std::unique_ptr<Mark> mark(Stream& stream) override {
    return std::make_unique<EventMark>(stream);
  }

 private:
  int device_;
};

}  // namespace

DeviceHeap::DeviceHeap(int device)
    : device_(device), backing_(std::make_unique<RuntimeBacking>(device)), pool_(*backing_) {}

DeviceHeap::Usage DeviceHeap::usage(std::int64_t bytes) {
  const auto& pool = pool_.statistics();
  return {bytes, pool.allocated_bytes.all.current, pool.reserved_bytes.all.current};
}

void* DeviceHeap::try_allocate(std::size_t bytes, Stream& stream, Usage& used) {
  const std::lock_guard lock(mutex_);
  const auto before = pool_.statistics().allocated_bytes.all.current;
  void* address = pool_.allocate(bytes, stream);
  used = usage(pool_.statistics().allocated_bytes.all.current - before);
  return address;
}

DeviceHeap::Allocation DeviceHeap::allocate(std::size_t bytes, Stream& stream) {
  if (bytes <= AddressSpace::get().capacity()) {  // else giving the cache back cannot help
    Usage used;
    if (void* address = try_allocate(bytes, stream, used)) return {address, used};
    empty_cache();
    {
      const std::lock_guard lock(mutex_);
      ++counts_.retries;
    }
    if (void* address = try_allocate(bytes, stream, used)) return {address, used};
  }
  const std::lock_guard lock(mutex_);
  ++counts_.out_of_memory;
  return {nullptr, usage(static_cast<std::int64_t>(bytes))};
}

DeviceHeap::Usage DeviceHeap::free(void* address) {
  const std::lock_guard lock(mutex_);
  return usage(-static_cast<std::int64_t>(pool_.free(address)));
}

void DeviceHeap::record_stream(void* address, Stream& stream) {
  const std::lock_guard lock(mutex_);
  pool_.record_stream(address, stream);
}

void DeviceHeap::empty_cache() {
  // Twice: blocks that other streams used become unused by the first wait, and the second, which
  // finds the device idle unless other threads launch, covers work that was queued before they were
  // detached. See Note [Stream order].
  synchronize_device(device_);
  BlockPool::Segments unused;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.synchronizations;
    pool_.collect();
    unused = pool_.detach_unused();
  }
  try {
    synchronize_device(device_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    pool_.restore(unused);
    throw;
  }
  const std::lock_guard lock(mutex_);
  pool_.release(unused);
}

DeviceHeap::Statistics DeviceHeap::statistics() {
  const std::lock_guard lock(mutex_);
  Statistics all = counts_;
  all.pool = pool_.statistics();
  return all;
}

void DeviceHeap::reset_peak() {
  const std::lock_guard lock(mutex_);
  pool_.statistics().reset_peak();
}

void DeviceHeap::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  pool_.statistics().reset_accumulated();
  counts_ = {};
}

DeviceHeap& device_heap(int device) {
  static auto& heaps = *[] {
    auto* all = new std::array<std::unique_ptr<DeviceHeap>, kMaxDevices>;
    for (std::size_t i = 0; i < kMaxDevices; ++i)
      (*all)[i] = std::make_unique<DeviceHeap>(static_cast<int>(i));
    return all;
  }();
  return *heaps[static_cast<std::size_t>(device)];
}

}  // namespace openreg::backend
