#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

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
  };

  /// `bytes` > 0. Out of memory, it waits for the device, gives the cache back, and tries again.
  Allocation allocate(std::size_t bytes, Stream& stream, const Context& context = {});
  Usage free(void* address, const Context& context = {});
  void record_stream(void* address, Stream& stream);
  /// Gives unused memory back to the device: of the default pool and of pools that are given up, or
  /// only of one such. Waits for the device; what failed on it stays for those who wait for the
  /// results.
  void empty_cache(PoolId pool = {});

  /// The part of the device's memory, from 0 to 1, that may be reserved.
  void set_fraction(double fraction);
  double fraction();

  /// f(Heap&), under the lock: it takes no other one, and waits for nothing.
  template <class F>
  decltype(auto) locked(F&& f) {
    const std::lock_guard lock(mutex_);
    return std::forward<F>(f)(heap_);
  }

 private:
  template <class Take>
  bool attempt(Allocation& result, Take take);
  template <class Detach>
  void give_back(Detach detach);
  Allocation allocate_slowly(std::size_t bytes, Stream& stream, const Context& context);
  Usage usage(std::int64_t bytes);  // under the lock

  const int device_;
  std::unique_ptr<Backing> backing_;
  BackoffLock mutex_;  // guards what follows; never held while waiting
  Heap heap_;
  double fraction_ = 1;
};

/// The heap of `device`, which must exist. Leaked: tensors may outlive static destruction.
DeviceHeap& device_heap(int device);

}  // namespace openreg::memory
