#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/block_pool.h"

namespace openreg::backend {

/// One device's memory as the allocator uses it: the pool under a lock, over the runtime's address
/// space and events, and what to do when memory runs out. Thread safe. Throws the runtime's errors.
class DeviceHeap {
 public:
  explicit DeviceHeap(int device);

  /// What profilers are told with each allocation.
  struct Usage {
    std::int64_t bytes = 0;  ///< of this block
    std::int64_t allocated = 0;
    std::int64_t reserved = 0;
  };
  struct Allocation {
    void* address;  ///< nullptr: out of memory, also after the cache was given back
    Usage usage;
  };

  /// `bytes` > 0. Out of memory, it waits for the device, gives the cache back, and tries again.
  Allocation allocate(std::size_t bytes, Stream& stream);
  Usage free(void* address);
  void record_stream(void* address, Stream& stream);
  /// Gives all unused memory back to the device. Waits for the device; throws what failed on it.
  void empty_cache();

  struct Statistics {
    PoolStatistics pool;
    std::int64_t retries = 0;  ///< allocations that had to give the cache back
    std::int64_t out_of_memory = 0;
    std::int64_t synchronizations = 0;
  };
  Statistics statistics();
  void reset_peak();
  void reset_accumulated();

 private:
  void* try_allocate(std::size_t bytes, Stream& stream, Usage& usage);
  Usage usage(std::int64_t bytes);  // under the lock

  const int device_;
  std::unique_ptr<PoolBacking> backing_;
  std::mutex mutex_;  // guards what follows; never held while waiting
  BlockPool pool_;
  Statistics counts_;  // all but `pool`
};

/// The heap of `device`, which must exist. Leaked: tensors may outlive static destruction.
DeviceHeap& device_heap(int device);

}  // namespace openreg::backend
