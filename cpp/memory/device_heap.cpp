#include "memory/device_heap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "address_space/address_space.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "memory/runtime_backing.h"
#include "runtime/capture.h"
#include "runtime/happens_before.h"
#include "runtime/stream.h"

namespace openreg::memory {

namespace {

std::atomic<FreeMemoryCallback> g_free_memory{nullptr};

bool free_memory(int device) {
  const auto callback = g_free_memory.load(std::memory_order_acquire);
  return callback != nullptr && callback(device);
}

// Without computing the machine holds next to nothing of a device's memory.
std::size_t left_of_machine() {
  return computes() ? AddressSpace::get().machine_left() : std::numeric_limits<std::size_t>::max();
}

auto detaching_unused(PoolId pool = {}) {
  return [pool](Heap& heap) {
    ++heap.statistics().synchronizations;
    heap.collect();
    return heap.detach_unused(pool);
  };
}

}  // namespace

DeviceHeap::DeviceHeap(int device)
    : device_(device), backing_(std::make_unique<RuntimeBacking>(device)), heap_(*backing_) {}

DeviceHeap::Usage DeviceHeap::usage(std::int64_t bytes) {
  const auto& statistics = heap_.statistics();
  return {bytes, statistics.allocated_bytes.current(), statistics.reserved_bytes.current()};
}

// `take` returns the address or nullptr.
template <class Take>
bool DeviceHeap::attempt(Allocation& result, Take take) {
  const auto before = heap_.statistics().allocated_bytes.current();
  result.address = take(heap_);
  result.usage = usage(heap_.statistics().allocated_bytes.current() - before);
  return result.address != nullptr;
}

DeviceHeap::Allocation DeviceHeap::allocate(std::size_t bytes, Stream& stream,
                                            const Context& context) {
  const auto cached = [&](Heap& heap) { return heap.allocate_cached(bytes, stream, context); };
  do {
    Allocation result;
    const LockGuard lock(mutex_);
    if (attempt(result, cached)) return result;
  } while (free_memory(device_) ||
           (settings().launch_blocking && capture_of(stream) == 0 && catch_up()));
  return allocate_slowly(bytes, stream, context);
}

// With TORCH_OPENREG_LAUNCH_BLOCKING=1 streams have done their work, but an engine that the system
// has interrupted may not have passed the events after it. Transfers between ranks do not block.
bool DeviceHeap::catch_up() {
  constexpr std::chrono::milliseconds kLongest{100};
  constexpr std::chrono::microseconds kPause{50};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  const auto before = locked([](Heap& heap) { return heap.statistics().active.current(); });
  while (true) {
    const auto [active, awaits_none] = locked([](Heap& heap) {
      heap.collect();
      return std::pair(heap.statistics().active.current(), heap.awaited_streams().empty());
    });
    if (awaits_none || std::chrono::steady_clock::now() > end) return active < before;
    std::this_thread::sleep_for(kPause);
  }
}

// Tries what CUDA's allocator tries, in the same order. CUDA's keeps its lock all the time; here
// other threads continue, and may have taken and freed memory while this thread waited. So this
// function tries again until there is room, or until at one moment there is none.
DeviceHeap::Allocation DeviceHeap::allocate_slowly(std::size_t bytes, Stream& stream,
                                                   const Context& context) {
  // CUDA's allocator calls cudaMalloc here, which is potentially unsafe too.
  if (capture_of(stream) == 0) expect_safe_call("an allocation that the cache does not serve");
  if (locked([](Heap& heap) { return heap.policy().is_cudas(); }))
    return allocate_as_cuda(bytes, stream, context);
  Allocation result;
  const auto mapped = [&](Heap& heap) { return heap.allocate(bytes, stream, context); };
  const auto try_mapped = [&]() OPENREG_REQUIRES(mutex_) { return attempt(result, mapped); };
  {
    const LockGuard lock(mutex_);
    apply_limit();
  }
  release_to_device([](Heap& heap) { return heap.detach_oldest(); }, try_mapped);
  if (result.address != nullptr) return result;
  release_to_device([&](Heap& heap) { return heap.detach_oversize(bytes, stream); }, try_mapped);
  if (result.address != nullptr) return result;
  locked([](Heap& heap) { ++heap.statistics().retries; });
  for (bool ended = false; !ended;) {
    wait_for_users();
    release_to_device(detaching_unused(), [&]() OPENREG_REQUIRES(mutex_) {
      ended = try_mapped() || !can_make_room(bytes, stream);
      if (!ended || result.address != nullptr) return;
      const auto last = [&](Heap& heap) {
        return heap.allocate_last_resort(bytes, stream, context);
      };
      if (!attempt(result, last)) result = fail(bytes, stream, context);
    });
  }
  return result;
}

// The same with the steps that are visible in the statistics of CUDA's allocator, and no others.
// See Note [CUDA's segments].
DeviceHeap::Allocation DeviceHeap::allocate_as_cuda(std::size_t bytes, Stream& stream,
                                                    const Context& context) {
  Allocation result;
  const auto mapped = [&](Heap& heap) { return heap.allocate_mapped(bytes, stream, context); };
  const auto try_mapped = [&]() OPENREG_REQUIRES(mutex_) { return attempt(result, mapped); };
  {
    const LockGuard lock(mutex_);
    apply_limit();
  }
  release_to_device([](Heap& heap) { return heap.detach_oldest(); },
                    [&]() OPENREG_REQUIRES(mutex_) {
                      const auto last = [&](Heap& heap) {
                        return heap.allocate_last_resort(bytes, stream, context);
                      };
                      if (!try_mapped()) attempt(result, last);
                    });
  if (result.address != nullptr) return result;

  bool made_room = false;
  const auto detach_oversize = [&](Heap& heap) {
    auto pieces = heap.detach_oversize(bytes, stream);
    std::size_t released = 0;
    for (const Block* piece : pieces) released += piece->bytes;
    const auto& policy = heap.policy();
    made_room =
        !pieces.empty() && released >= std::max(policy.round(bytes), policy.max_split_bytes);
    return pieces;
  };
  release_to_device(detach_oversize, [&]() OPENREG_REQUIRES(mutex_) {
    if (made_room) try_mapped();
  });
  if (result.address != nullptr) return result;

  if (is_capturing()) {
    const LockGuard lock(mutex_);
    return fail(bytes, stream, context);
  }
  locked([](Heap& heap) { ++heap.statistics().retries; });
  for (bool ended = false; !ended;) {
    wait_for_users();
    release_to_device(detaching_unused(), [&]() OPENREG_REQUIRES(mutex_) {
      ended = try_mapped() || !can_make_room(bytes, stream);
      if (ended && result.address == nullptr) result = fail(bytes, stream, context);
    });
  }
  return result;
}

DeviceHeap::Allocation DeviceHeap::simulate_out_of_memory(std::size_t bytes, Stream& stream,
                                                          const Context& context) {
  static_cast<void>(free_memory(device_));
  locked([](Heap& heap) { ++heap.statistics().retries; });
  wait_for_users();
  Allocation result;
  release_to_device(detaching_unused(), [&]() OPENREG_REQUIRES(mutex_) {
    const auto last = [&](Heap& heap) { return heap.allocate_last_resort(bytes, stream, context); };
    if (!attempt(result, last)) result = fail(bytes, stream, context);
  });
  result.of = Shortage::kDevice;
  return result;
}

std::size_t DeviceHeap::limit() const {
  return static_cast<std::size_t>(fraction_ * static_cast<double>(AddressSpace::get().capacity()));
}

void DeviceHeap::apply_limit() { heap_.set_limit(limit(), fraction_ < 1); }

bool DeviceHeap::has_room(std::size_t bytes) {
  const LockGuard lock(mutex_);
  const auto active = static_cast<std::size_t>(heap_.statistics().active_bytes.current());
  return bytes <= limit() - std::min(limit(), active);
}

// Whether the memory that is unused now, and that which becomes unused when streams have done their
// work, would be enough.
bool DeviceHeap::can_make_room(std::size_t bytes, Stream& stream) {
  // An event on a captured stream does not complete before the capture has ended.
  const auto awaited = heap_.awaited_streams();
  const bool may_become_unused =
      std::ranges::none_of(awaited, [](const Stream* user) { return capture_of(*user) != 0; });
  std::size_t unused = heap_.unused_bytes(may_become_unused);
  for (const auto& [number, pieces] : detached_) {
    for (const Block* piece : pieces) unused += piece->bytes;
  }
  const auto reserved = static_cast<std::size_t>(heap_.statistics().reserved_bytes.current());
  const std::size_t below_limit = heap_.limit() - std::min(heap_.limit(), reserved);
  const std::size_t room = std::min({below_limit, free_on_device(), left_of_machine()});
  return unused > 0 && room + unused >= heap_.bytes_to_map(bytes, stream);
}

DeviceHeap::Allocation DeviceHeap::fail(std::size_t bytes, Stream& stream, const Context& context) {
  const std::size_t machine = left_of_machine();
  const std::size_t free = std::min(free_on_device(), machine);
  heap_.out_of_memory(bytes, free, stream, context);
  const auto reserved = static_cast<std::size_t>(heap_.statistics().reserved_bytes.current());
  const std::size_t below_limit = heap_.limit() - std::min(heap_.limit(), reserved);
  const bool is_beyond = bytes > AddressSpace::get().capacity();  // rounding may overflow
  auto of = Shortage::kDevice;
  if ((is_beyond ? bytes : heap_.bytes_to_map(bytes, stream)) > machine) {
    of = Shortage::kMachine;
  } else if (!is_beyond && heap_.bytes_of_segment(bytes) <= std::min(below_limit, free)) {
    of = Shortage::kSystem;
  }
  const bool has_segment = heap_.policy().is_cudas() && !is_beyond;
  return {.address = nullptr,
          .usage = usage(signed_bytes(bytes)),
          .free = free,
          .limit = heap_.limit(),
          .segment = has_segment ? heap_.bytes_of_segment(bytes) : 0,
          .of = of};
}

std::size_t DeviceHeap::free_on_device() const {
  const auto& space = AddressSpace::get();
  return space.capacity() - space.mapped(device_);
}

DeviceHeap::Usage DeviceHeap::free(void* address, const Context& context) {
  const LockGuard lock(mutex_);
  return usage(-static_cast<std::int64_t>(heap_.free(address, context)));
}

void DeviceHeap::record_stream(void* address, Stream& stream) {
  const LockGuard lock(mutex_);
  heap_.record_stream(address, stream);
}

std::vector<Stream*> DeviceHeap::streams_of(const void* address) {
  const LockGuard lock(mutex_);
  return heap_.streams_of(address);
}

// `detach` takes memory out of the cache under the lock. Queued work may still use the memory, so
// it is released when the device has completed all work that it had. See Note [Stream order].
// `then` is called under the same lock as the release, so no other thread can have taken the room.
template <class Detach, class Then>
void DeviceHeap::release_to_device(Detach detach, Then then) {
  std::uint64_t number = 0;
  {
    const LockGuard lock(mutex_);
    if (auto pieces = detach(heap_); !pieces.empty()) {
      number = ++detachments_;
      detached_.push_back({number, std::move(pieces)});
    }
  }
  if (number != 0) {
    const InternalWaitScope internal;  // whether memory is short says nothing about the program
    try {
      drain_device(device_);
    } catch (...) {
      const LockGuard lock(mutex_);
      const auto own =
          std::find_if(detached_.begin(), detached_.end(),
                       [number](const Detached& some) { return some.number == number; });
      if (own != detached_.end()) {
        heap_.restore(own->pieces);
        detached_.erase(own);
      }
      throw;
    }
  }
  const LockGuard lock(mutex_);
  release_until(number);
  then();
}

// Called after a wait for the device that began when `number` was the newest detachment.
void DeviceHeap::release_until(std::uint64_t number) {
  for (; !detached_.empty() && detached_.front().number <= number; detached_.pop_front()) {
    for (const Block* piece : detached_.front().pieces)
      checks::notify(&CommandCheck::forgotten, piece->address, piece->bytes);
    heap_.release(detached_.front().pieces);
  }
}

// Makes blocks available that other streams used, which may be streams of other devices.
void DeviceHeap::wait_for_users() {
  std::uint64_t number = 0;
  {
    const LockGuard lock(mutex_);
    number = detachments_;
  }
  const InternalWaitScope internal;
  drain_device(device_);
  std::vector<Stream*> others;
  {
    const LockGuard lock(mutex_);
    release_until(number);
    others = heap_.awaited_streams();
  }
  for (Stream* stream : others) {
    if (stream->device() != device_) stream->drain();
  }
}

void DeviceHeap::empty_cache(PoolId pool) {
  wait_for_users();
  release_to_device(detaching_unused(pool), [] {});
}

void DeviceHeap::restore_checkpoint(const Checkpoint& checkpoint) {
  wait_for_users();
  const LockGuard lock(mutex_);
  heap_.collect();
  heap_.restore_checkpoint(checkpoint);
}

void DeviceHeap::overwrite(std::byte value) {
  const LockGuard lock(mutex_);
  for (const auto& segment : heap_.segments()) {
    void* const begin = reinterpret_cast<void*>(segment.address);
    std::memset(AddressSpace::get().aperture(begin), std::to_integer<int>(value), segment.bytes);
  }
}

void DeviceHeap::set_fraction(double fraction) {
  const LockGuard lock(mutex_);
  fraction_ = fraction;
  if (AddressSpace::get_if_reserved() != nullptr) apply_limit();
}

double DeviceHeap::fraction() {
  const LockGuard lock(mutex_);
  return fraction_;
}

void set_free_memory_callback(FreeMemoryCallback callback) noexcept {
  g_free_memory.store(callback, std::memory_order_release);
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
