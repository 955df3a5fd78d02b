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
/// and events, and what to do when memory runs out. Thread safe. Throws the runtime's errors.
class DeviceHeap {
 public:
  explicit DeviceHeap(int device);

  /// What profilers are told with each allocation.
  struct Usage {
    std::int64_t bytes = 0;  ///< of this block; less than 0 where it is freed
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
  };
  struct Allocation {
    void* address = nullptr;  ///< nullptr: out of memory, also after the cache was given back
    Usage usage;
    // Without an address, and of the same moment as `usage`:
    std::size_t free = 0;   ///< bytes of the device that are not mapped
    std::size_t limit = 0;  ///< bytes that may be reserved
  };

  /// `bytes` > 0. Out of memory, it waits for the device, gives the cache back, and tries again. It
  /// fails only if at one moment what is free and all that could go back are not enough, whatever
  /// other threads do meanwhile.
  Allocation allocate(std::size_t bytes, Stream& stream, const Context& context = {});
  Usage free(void* address, const Context& context = {});
  void record_stream(void* address, Stream& stream);
  std::vector<Stream*> streams_of(const void* address);
  /// Gives unused memory back to the device: of the default pool and of pools that are given up, or
  /// only of one such. Waits for the device; what failed on it stays for those who wait for the
  /// results.
  void empty_cache(PoolId pool = {});

  /// The part of the device's memory, from 0 to 1, that may be reserved.
  void set_fraction(double fraction);
  double fraction();

  /// f(Heap&), under the lock: it takes no other one, and waits for nothing.
  template <class F>
  decltype(auto) locked(F&& f) OPENREG_EXCLUDES(mutex_) {
    const LockGuard lock(mutex_);
    return std::forward<F>(f)(heap_);
  }

 private:
  // Memory on its way back to the device. Whoever has waited for the device since releases it: a
  // thread that is short of memory does not depend on the one that detached it.
  struct Leaving {
    std::uint64_t number;
    Heap::Pieces pieces;
  };

  template <class Detach, class Then>
  void give_back(Detach detach, Then then);
  void wait_for_users();
  Allocation allocate_slowly(std::size_t bytes, Stream& stream, const Context& context);
  template <class Take>
  bool attempt(Allocation& result, Take take) OPENREG_REQUIRES(mutex_);
  bool can_make_room(std::size_t bytes, Stream& stream) OPENREG_REQUIRES(mutex_);
  Allocation fail(std::size_t bytes, Stream& stream, const Context& context)
      OPENREG_REQUIRES(mutex_);
  void release_until(std::uint64_t number) OPENREG_REQUIRES(mutex_);
  std::size_t free_on_device() const;
  Usage usage(std::int64_t bytes) OPENREG_REQUIRES(mutex_);

  const int device_;
  std::unique_ptr<Backing> backing_;
  BackoffLock mutex_;  // never held while waiting
  Heap heap_ OPENREG_GUARDED_BY(mutex_);
  // In the order of their numbers.
  std::deque<Leaving> leaving_ OPENREG_GUARDED_BY(mutex_);
  // So far; the number of the newest.
  std::uint64_t detachments_ OPENREG_GUARDED_BY(mutex_) = 0;
  double fraction_ OPENREG_GUARDED_BY(mutex_) = 1;
};

/// Asked before a heap that has nothing that fits asks its device for memory, under no lock. True:
/// it has freed blocks.
using FreeMemoryCallback = bool (*)(int device);
/// Replaces the one before; nullptr: none is asked.
void set_free_memory_callback(FreeMemoryCallback callback) noexcept;

/// The heap of `device`, which must exist. Leaked: tensors may outlive static destruction.
DeviceHeap& device_heap(int device);

}  // namespace openreg::memory
