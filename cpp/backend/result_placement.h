#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace openreg::backend {

// The CPU's functional kernels allocate their results themselves. So that a result lies in the
// device's memory without a copy, the allocation from which it comes is served with that memory. A
// probe has found out which allocation that is.

/// While it lives, records the CPU allocations of the calling thread.
class AllocationLog {
 public:
  AllocationLog();
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  static constexpr std::int32_t kNone = -1;
  /// The number of the last allocation that returned this address; kNone if none did.
  std::int32_t number_of(const void* address) const;

 private:
  friend class ServingAllocator;
  std::vector<const void*> addresses_;
  AllocationLog* const outer_;
};

struct Placement {
  std::int32_t allocation;
  void* memory;
  std::size_t bytes;
};

/// While it lives, those CPU allocations of the calling thread that have these numbers are served
/// with the given memory, if they request as many bytes.
class ResultPlacement {
 public:
  explicit ResultPlacement(std::span<const Placement> places);
  ~ResultPlacement();
  ResultPlacement(const ResultPlacement&) = delete;
  ResultPlacement& operator=(const ResultPlacement&) = delete;

  /// For an executor, where no AllocationLog comes first.
  static void prepare_process();

 private:
  friend class ServingAllocator;
  const std::span<const Placement> places_;
  std::int32_t next_ = 0;
  ResultPlacement* const outer_;
};

/// While it lives, the device's free memory limits the CPU allocations of the calling thread: one
/// for which the device has no room throws what the device's own allocation would, and is counted
/// as such. For kernels that compute, on the calling thread, results that then belong to the
/// device. Does nothing for the CPU.
class DeviceMemoryLimit {
 public:
  explicit DeviceMemoryLimit(c10::Device device);
  ~DeviceMemoryLimit();
  DeviceMemoryLimit(const DeviceMemoryLimit&) = delete;
  DeviceMemoryLimit& operator=(const DeviceMemoryLimit&) = delete;

 private:
  friend class ServingAllocator;
  void expect(std::size_t bytes) const;

  const c10::Device device_;
  DeviceMemoryLimit* const outer_;
};

}  // namespace openreg::backend
