#include "backend/launch_counters.h"

#include <array>

namespace openreg::backend {

namespace counters {
Counter typed{"typed"};
Counter boxed{"boxed"};
Counter compiled{"compiled"};
Counter synchronous{"synchronous"};
Counter cpu_fallbacks{"cpu_fallbacks"};
Counter copies{"copies"};
Counter host_waits{"host_waits"};
Counter plan_hits{"plan_hits"};
Counter plans_made{"plans_made"};
Counter probes{"probes"};
Counter probe_ns{"probe_ns"};
Counter probe_bytes{"probe_bytes"};
}  // namespace counters

std::span<Counter* const> launch_counters() noexcept {
  static constexpr std::array<Counter*, 12> kAll{
      &counters::typed,         &counters::boxed,  &counters::compiled,   &counters::synchronous,
      &counters::cpu_fallbacks, &counters::copies, &counters::host_waits, &counters::plan_hits,
      &counters::plans_made,    &counters::probes, &counters::probe_ns,   &counters::probe_bytes};
  return kAll;
}

}  // namespace openreg::backend
