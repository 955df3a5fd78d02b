#pragma once

#include <cstdint>

#include "base/launch_site.h"
#include "memory/block.h"

namespace openreg::backend {

/// What made an allocation, for `fits`: a stack takes a hundred times the memory and the time.
struct AllocationLabel {
  std::uint32_t tag = 0;  ///< set_allocation_tag() of the thread
  LaunchSite line = 0;    ///< of the program
  bool backward = false;  ///< in a backward pass
  // PyTorch's name of the node of the graph that runs: its sequence number and the thread that made
  // it, both 0 if there is none. A node that accumulates a gradient has the largest number.
  std::uint64_t node = 0;
  std::uint64_t thread_of_node = 0;
  // The calling thread, and the number of the next node that it makes. An operator makes its node
  // before it allocates.
  std::uint64_t thread = 0;
  std::uint64_t next_node = 0;
};

/// The tag of what a library's workspace takes; programs' own tags are larger.
inline constexpr std::uint32_t kWorkspaceTag = 1;

/// A number that labels the calling thread's allocations from now on; returns the one before, which
/// is 0 at first.
std::uint32_t set_allocation_tag(std::uint32_t tag) noexcept;

/// An AllocationLabel of the calling thread. Takes the GIL: must not be called under a lock.
memory::Context allocation_label();

}  // namespace openreg::backend
