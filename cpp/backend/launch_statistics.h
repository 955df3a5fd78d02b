#pragma once

#include <cstddef>
#include <cstdint>

namespace openreg::backend {

/// What is counted of operators' calls; docs/architecture.md, "Three tiers" and "Plans".
enum class LaunchCounter : std::size_t {
  kTyped,         ///< asynchronous launches with typed arguments: structured operators, our own
  kBoxed,         ///< asynchronous launches of boxed operators
  kCompiled,      ///< kernels that torch.compile generated
  kSynchronous,   ///< operators that waited for the stream and ran on the calling thread
  kCpuFallbacks,  ///< of these, operators outside of aten, which have a kernel for the CPU only
  kCopies,        ///< asynchronous copies of bytes, for storages
  kHostWaits,     ///< times an operator made the host wait (synchronous ones, item, copies to it)
  kPlanHits,      ///< calls that found their plan
  kPlansMade,     ///< calls that had to be planned
  kProbes,        ///< kernels run on the calling thread to see what they make of such arguments
  kProbeNanoseconds,
  kProbeBytes,  ///< of stand-ins made for probes
  kCount,
};

/// Counts one. Each thread counts for itself; no two write to one place.
void count(LaunchCounter counter, std::uint64_t by = 1) noexcept;

/// Since the process began or the last reset.
std::uint64_t counted(LaunchCounter counter) noexcept;
void reset_launch_counters() noexcept;

}  // namespace openreg::backend
