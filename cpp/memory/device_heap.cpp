#include "memory/device_heap.h"

#include <array>
#include <memory>

#include "runtime/address_space.h"
#include "runtime/event.h"
#include "runtime/settings.h"
#include "runtime/stream.h"

namespace openreg::memory {

namespace {

class EventMark final : public Mark {
 public:
  explicit EventMark(Stream& stream) { event_.mark(stream); }
  bool passed() const noexcept override { return event_.happened(); }

 private:
  Event event_;
};

class RuntimeBacking final : public Backing {
 public:
  explicit RuntimeBacking(int device) : device_(device) {}
  Addresses addresses() const override {
    const auto& space = AddressSpace::get();
    return {space.window_begin(device_), space.window_bytes()};
  }
  void* map(std::size_t bytes) override { return AddressSpace::get().map(device_, bytes); }
  bool extend(void* end, std::size_t bytes) override {
    return AddressSpace::get().extend(end, bytes);
  }
  void unmap(void* memory, std::size_t bytes) noexcept override {
    AddressSpace::get_if_reserved()->unmap(memory, bytes);
  }
  std::unique_ptr<Mark> mark(Stream& stream) override {
    return std::make_unique<EventMark>(stream);
  }

 private:
  int device_;
};

}  // namespace

DeviceHeap::DeviceHeap(int device)
    : device_(device), backing_(std::make_unique<RuntimeBacking>(device)), heap_(*backing_) {}

DeviceHeap::Usage DeviceHeap::usage(std::int64_t bytes) {
  const auto& statistics = heap_.statistics();
  return {bytes, statistics.allocated_bytes.current(), statistics.reserved_bytes.current()};
}

// Under the lock, `take` gives the address or nullptr.
template <class Take>
bool DeviceHeap::attempt(Allocation& result, Take take) {
  const std::lock_guard lock(mutex_);
  const auto before = heap_.statistics().allocated_bytes.current();
  result.address = take(heap_);
  result.usage = usage(heap_.statistics().allocated_bytes.current() - before);
  return result.address != nullptr;
}

DeviceHeap::Allocation DeviceHeap::allocate(std::size_t bytes, Stream& stream,
                                            const Context& context) {
  Allocation result;
  const auto cached = [&](Heap& heap) { return heap.allocate_cached(bytes, stream, context); };
  if (attempt(result, cached)) return result;
  return allocate_slowly(bytes, stream, context);
}

// What is tried is what CUDA's allocator tries, in its order.
DeviceHeap::Allocation DeviceHeap::allocate_slowly(std::size_t bytes, Stream& stream,
                                                   const Context& context) {
  const std::size_t capacity = AddressSpace::get().capacity();
  const auto limit = locked([&](Heap& heap) {
    heap.set_limit(static_cast<std::size_t>(fraction_ * static_cast<double>(capacity)));
    return heap.limit();
  });
  Allocation result;
  const auto mapped = [&](Heap& heap) { return heap.allocate(bytes, stream, context); };
  if (bytes <= limit) {  // else giving the cache back cannot help
    give_back([](Heap& heap) { return heap.detach_oldest(); });
    if (attempt(result, mapped)) return result;
    give_back([&](Heap& heap) { return heap.detach_oversize(bytes, stream); });
    if (attempt(result, mapped)) return result;
    empty_cache();
    locked([](Heap& heap) { ++heap.statistics().retries; });
    if (attempt(result, mapped)) return result;
    const auto last = [&](Heap& heap) { return heap.allocate_last_resort(bytes, stream, context); };
    if (attempt(result, last)) return result;
  }
  const std::size_t free = capacity - AddressSpace::get().mapped(device_);
  const std::lock_guard lock(mutex_);
  heap_.out_of_memory(bytes, free, stream, context);
  return {nullptr, usage(static_cast<std::int64_t>(bytes))};
}

DeviceHeap::Usage DeviceHeap::free(void* address, const Context& context) {
  const std::lock_guard lock(mutex_);
  return usage(-static_cast<std::int64_t>(heap_.free(address, context)));
}

void DeviceHeap::record_stream(void* address, Stream& stream) {
  const std::lock_guard lock(mutex_);
  heap_.record_stream(address, stream);
}

// `detach` takes memory out of the cache under the lock. Queued work may still use it: it
// goes when the device has done all that it had. See Note [Stream order].
template <class Detach>
void DeviceHeap::give_back(Detach detach) {
  const auto pieces = locked(detach);
  if (pieces.empty()) return;
  try {
    drain_device(device_);
  } catch (...) {
    locked([&](Heap& heap) { heap.restore(pieces); });
    throw;
  }
  locked([&](Heap& heap) { heap.release(pieces); });
}

void DeviceHeap::empty_cache(PoolId pool) {
  // First the blocks that other streams used, which these waits make available. Streams of other
  // devices may be among them.
  drain_device(device_);
  for (Stream* stream : locked([](Heap& heap) { return heap.awaited_streams(); })) {
    if (stream->device() != device_) stream->drain();
  }
  give_back([&](Heap& heap) {
    ++heap.statistics().synchronizations;
    heap.collect();
    return heap.detach_unused(pool);
  });
}

void DeviceHeap::set_fraction(double fraction) {
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
}

double DeviceHeap::fraction() {
  const std::lock_guard lock(mutex_);
  return fraction_;
}

DeviceHeap& device_heap(int device) {
  static auto& heaps = *[] {
    auto* all = new std::array<std::unique_ptr<DeviceHeap>, kMaxDevices>;
    for (std::size_t i = 0; i < all->size(); ++i)
      (*all)[i] = std::make_unique<DeviceHeap>(static_cast<int>(i));
    return all;
  }();
  return *heaps[static_cast<std::size_t>(device)];
}

}  // namespace openreg::memory
