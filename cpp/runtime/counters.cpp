#include "runtime/counters.h"

#include "runtime/stream.h"

namespace openreg {

constinit Counters g_counters;

SchedulerCounters scheduler_counters() noexcept {
  const auto read = [](const Counters::Counter& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {.commands_by_engines = read(g_counters.commands_by_engines),
          .commands_by_hosts = read(g_counters.commands_by_hosts),
          .grants = read(g_counters.grants),
          .helps = read(g_counters.helps),
          .parks = read(g_counters.parks),
          .spares = read(g_counters.spares),
          .sleeps = read(g_counters.sleeps),
          .engines = read(g_counters.engines)};
}

}  // namespace openreg
