#pragma once

#include <atomic>
#include <cstdint>

namespace openreg {

/// The live counters that SchedulerCounters reports.
struct Counters {
  using Counter = std::atomic<std::uint64_t>;

  Counter commands_by_engines{0};
  Counter commands_by_hosts{0};
  Counter grants{0};
  Counter helps{0};
  Counter parks{0};
  Counter spares{0};
  Counter sleeps{0};
  Counter engines{0};
};

extern constinit Counters g_counters;

/// Relaxed: the counters are for display and for tests, and order nothing.
inline void count(Counters::Counter& counter, std::uint64_t by = 1) noexcept {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace openreg
