#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace openreg::backend {

// The CPU's functional kernels make the memory of their results themselves. For a result to lie in
// the device's memory without a copy, the allocation that it comes from is served with that memory:
// which one it is, a probe has seen.

/// While alive: notes what the CPU's allocator hands to the calling thread.
class AllocationLog {
 public:
  AllocationLog();
  ~AllocationLog();
  AllocationLog(const AllocationLog&) = delete;
  AllocationLog& operator=(const AllocationLog&) = delete;

  static constexpr std::int32_t kNone = -1;
  /// The number of the last allocation that gave this address; kNone: none has.
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

/// While alive: of the calling thread's CPU allocations, those with these numbers are served with
/// the memory given, if they ask for as many bytes.
class ResultPlacement {
 public:
  explicit ResultPlacement(std::span<const Placement> places);
  ~ResultPlacement();
  ResultPlacement(const ResultPlacement&) = delete;
  ResultPlacement& operator=(const ResultPlacement&) = delete;

 private:
  friend class ServingAllocator;
  const std::span<const Placement> places_;
  std::int32_t next_ = 0;
  ResultPlacement* const outer_;
};

}  // namespace openreg::backend
