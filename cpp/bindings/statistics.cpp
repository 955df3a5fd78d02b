#include "ops/launch/statistics.h"

#include "bindings/bindings.h"
#include "ops/launch/sync_debug.h"
#include "runtime/stream.h"

namespace openreg::bindings {

namespace {

nb::dict launches() {
  const ops::LaunchStats stats = ops::launch_stats();
  nb::dict result;
  result["structured"] = stats.structured;
  result["boxed"] = stats.boxed;
  result["synchronous"] = stats.synchronous;
  result["host_waits"] = stats.host_waits;
  return result;
}

nb::dict scheduler() {
  const SchedulerCounters counters = scheduler_counters();
  nb::dict result;
  result["commands_by_engines"] = counters.commands_by_engines;
  result["commands_by_hosts"] = counters.commands_by_hosts;
  result["grants"] = counters.grants;
  result["helps"] = counters.helps;
  result["parks"] = counters.parks;
  result["spares"] = counters.spares;
  result["sleeps"] = counters.sleeps;
  result["engines"] = counters.engines;
  return result;
}

}  // namespace

void init_statistics(nb::module_& m) {
  m.def("launch_stats", &launches, "How operators reached the device so far.");
  m.def("reset_launch_stats", &ops::reset_launch_stats);
  m.def("set_sync_debug_mode",
        [](int mode) { ops::set_sync_debug_mode(static_cast<ops::SyncDebugMode>(mode)); });
  m.def("get_sync_debug_mode", [] { return static_cast<int>(ops::sync_debug_mode()); });
  m.def("scheduler_counters", &scheduler, "What the scheduler has done so far in this process.");
}

}  // namespace openreg::bindings
