#pragma once

#include <cstdint>

namespace openreg::ops {

/// How operators reached the device, since the process began or the last reset. See
/// docs/architecture.md, "Three tiers".
struct LaunchStats {
  std::uint64_t structured = 0;  ///< asynchronous launches with typed arguments
  std::uint64_t boxed = 0;       ///< asynchronous launches of boxed operators
  std::uint64_t synchronous =
      0;  ///< operators that waited for the stream and ran on the calling thread
  std::uint64_t host_waits =
      0;  ///< times an operator made the host wait (synchronous ones, item, copies to the host)
};

LaunchStats launch_stats() noexcept;
void reset_launch_stats() noexcept;

enum class Tier { kStructured, kBoxed, kSynchronous };
void count_launch(Tier tier) noexcept;
void count_host_wait() noexcept;

}  // namespace openreg::ops
