#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "memory/backoff_lock.h"
#include "memory/heap.h"

namespace openreg::memory {

/// One device's memory as allocators use it: a Heap under a lock, over the runtime's address space
/// and events, with a strategy for when memory runs out. Thread safe. Throws the runtime's errors.
class DeviceHeap {
 public:
  explicit DeviceHeap(int device);

  /// What is reported to profilers with each allocation.
  struct Usage {
    std::int64_t bytes = 0;  ///< of this block; negative if it is freed
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
  };
  /// Whose memory is short.
  enum class Shortage : std::uint8_t {
    kDevice,   ///< the device's, or the part that may be reserved
    kMachine,  ///< the machine or the control group has less left
    kSystem,   ///< there is memory, but the system refuses it
  };
  struct Allocation {
    void* address = nullptr;  ///< nullptr: out of memory
    Usage usage;
    // If there is no address; of the same moment as `usage`:
    std::size_t free = 0;     ///< bytes that could still be mapped
    std::size_t limit = 0;    ///< bytes that may be reserved
    std::size_t segment = 0;  ///< with CUDA's segments: the size of the one that has no room
    Shortage of = Shortage::kDevice;
  };

  /// `bytes` > 0. If memory runs out, waits for the device, empties the cache, and tries again.
  /// Fails only if `bytes` exceeds the limit, or if at one moment the free memory and all that
  /// could be returned to the device are not enough, whatever other threads allocate and free.
  /// With CUDA's segments, fails also where CUDA does: while a graph is captured, the cache is
  /// kept; and cached memory that becomes free during the wait is not used if it cannot be
  /// returned.
  Allocation allocate(std::size_t bytes, Stream& stream, const Context& context = {});
  /// Simulates an out-of-memory failure of allocate(), for an injected fault: only pools that serve
  /// as a last resort have memory.
  Allocation simulate_out_of_memory(std::size_t bytes, Stream& stream, const Context& context = {});
  Usage free(void* address, const Context& context = {});
  void record_stream(void* address, Stream& stream);
  std::vector<Stream*> streams_of(const void* address);
  /// Returns unused memory to the device: that of the default pool and of pools that are no longer
  /// used, or only that of one such pool. Waits for the device, and for streams of other devices
  /// that used the memory, but collects no failure.
  void empty_cache(PoolId pool = {});

  /// See Heap::restore_checkpoint(). First waits for the device, and for streams of other devices
  /// that used the memory, but collects no failure.
  void restore_checkpoint(const Checkpoint& checkpoint) OPENREG_EXCLUDES(mutex_);

  /// Fills all memory of the device, which is idle.
  void overwrite(std::byte value) OPENREG_EXCLUDES(mutex_);

  /// Whether the limit allows `bytes` more bytes in use.
  bool has_room(std::size_t bytes) OPENREG_EXCLUDES(mutex_);

  /// The part of the device's memory, from 0 to 1, that may be reserved.
  void set_fraction(double fraction);
  double fraction();

  /// Calls f(Heap&) under the lock: f must take no other lock and wait for nothing.
  template <class F>
  decltype(auto) locked(F&& f) OPENREG_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    return std::forward<F>(f)(heap_);
  }

 private:
  // Memory on its way back to the device. Any thread that has waited for the device since then
  // releases it, so a thread that is short of memory does not depend on the one that detached it.
  struct Detached {
    std::uint64_t number;
    Heap::Pieces pieces;
  };

  template <class Detach, class Then>
  void release_to_device(Detach detach, Then then);
  void wait_for_users();
  bool catch_up();
  Allocation allocate_slowly(std::size_t bytes, Stream& stream, const Context& context);
  Allocation allocate_as_cuda(std::size_t bytes, Stream& stream, const Context& context);
  void apply_limit() OPENREG_REQUIRES(mutex_);
  template <class Take>
  bool attempt(Allocation& result, Take take) OPENREG_REQUIRES(mutex_);
  bool can_make_room(std::size_t bytes, Stream& stream) OPENREG_REQUIRES(mutex_);
  Allocation fail(std::size_t bytes, Stream& stream, const Context& context)
      OPENREG_REQUIRES(mutex_);
  void release_until(std::uint64_t number) OPENREG_REQUIRES(mutex_);
  std::size_t free_on_device() const;
  std::size_t limit() const OPENREG_REQUIRES(mutex_);
  Usage usage(std::int64_t bytes) OPENREG_REQUIRES(mutex_);

  const int device_;
  std::unique_ptr<Backing> backing_;
  BackoffLock mutex_;  // never held while waiting
  Heap heap_ OPENREG_GUARDED_BY(mutex_);
  // In the order of their numbers.
  std::deque<Detached> detached_ OPENREG_GUARDED_BY(mutex_);
  // The number of detachments so far, which is also the number of the newest one.
  std::uint64_t detachments_ OPENREG_GUARDED_BY(mutex_) = 0;
  double fraction_ OPENREG_GUARDED_BY(mutex_) = 1;
};

/// Called without a lock when nothing in the cache of a heap fits, before the heap requests memory
/// from its device. True: it has freed blocks.
using FreeMemoryCallback = bool (*)(int device);
/// Replaces the previous one; nullptr: none is called.
void set_free_memory_callback(FreeMemoryCallback callback) noexcept;

/// The heap of `device`, which must exist. Leaked: tensors may outlive static destruction.
DeviceHeap& device_heap(int device);

}  // namespace openreg::memory
