#pragma once

#include <span>

#include "base/counters.h"

/// How operators reach the device; see docs/architecture.md, "Three tiers" and "Plans".
namespace openreg::backend::counters {
extern Counter typed;     ///< asynchronous launches with typed arguments: structured ones, our own
extern Counter boxed;     ///< asynchronous launches of boxed operators
extern Counter compiled;  ///< kernels that torch.compile generated
extern Counter synchronous;    ///< operators that waited for the stream and ran on this thread
extern Counter cpu_fallbacks;  ///< of these, operators outside aten with a kernel for the CPU only
extern Counter copies;         ///< asynchronous copies of bytes, for storages
extern Counter host_waits;  ///< operators that made the host wait (synchronous ones, item, copies)
extern Counter plan_hits;   ///< calls that found their plan
extern Counter plans_made;  ///< calls that had to be planned
extern Counter probes;      ///< kernels run on this thread to find out how they treat arguments
extern Counter probe_ns;
extern Counter probe_bytes;  ///< of stand-ins made for probes
}  // namespace openreg::backend::counters

namespace openreg::backend {

/// All counters of launches.
std::span<Counter* const> launch_counters() noexcept;

}  // namespace openreg::backend
