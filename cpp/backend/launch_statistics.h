#pragma once

#include <cstddef>
#include <cstdint>

namespace openreg::backend {

/// Counters of operator calls; see docs/architecture.md, "Three tiers" and "Plans".
enum class LaunchCounter : std::size_t {
  kTyped,         ///< asynchronous launches with typed arguments: structured operators, our own
  kBoxed,         ///< asynchronous launches of boxed operators
  kCompiled,      ///< kernels that torch.compile generated
  kSynchronous,   ///< operators that waited for the stream and ran on the calling thread
  kCpuFallbacks,  ///< of these, operators outside aten, which have a kernel for the CPU only
  kCopies,        ///< asynchronous copies of bytes, for storages
  kHostWaits,     ///< times an operator made the host wait (synchronous ones, item, copies to it)
  kPlanHits,      ///< calls that found their plan
  kPlansMade,     ///< calls that had to be planned
  kProbes,        ///< kernels run on the calling thread to find out how they treat such arguments
  kProbeNanoseconds,
  kProbeBytes,  ///< of stand-ins made for probes
  kCount,
};

/// Adds to a counter. Each thread has its own counters: only its first call takes a lock.
void count(LaunchCounter counter, std::uint64_t by = 1) noexcept;

/// The sum over all threads since the process began or since the last reset.
std::uint64_t counted(LaunchCounter counter) noexcept;
void reset_launch_counters() noexcept;

}  // namespace openreg::backend
