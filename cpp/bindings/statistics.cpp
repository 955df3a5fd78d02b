#include "backend/launch_statistics.h"

#include "bindings/bindings.h"
#include "ops/launch/sync_debug.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace openreg::bindings {

namespace {

nb::dict launches() {
  using backend::counted;
  using backend::LaunchCounter;
  nb::dict result;
  result["typed"] = counted(LaunchCounter::kTyped);
  result["boxed"] = counted(LaunchCounter::kBoxed);
  result["compiled"] = counted(LaunchCounter::kCompiled);
  result["synchronous"] = counted(LaunchCounter::kSynchronous);
  result["cpu_fallbacks"] = counted(LaunchCounter::kCpuFallbacks);
  result["copies"] = counted(LaunchCounter::kCopies);
  result["host_waits"] = counted(LaunchCounter::kHostWaits);
  result["plan_hits"] = counted(LaunchCounter::kPlanHits);
  result["plans_made"] = counted(LaunchCounter::kPlansMade);
  result["probes"] = counted(LaunchCounter::kProbes);
  result["probe_ns"] = counted(LaunchCounter::kProbeNanoseconds);
  result["probe_bytes"] = counted(LaunchCounter::kProbeBytes);
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
  m.def("launch_stats", &launches, "Counts how operators reached the device so far.");
  m.def("reset_launch_stats", &backend::reset_launch_counters);
  m.def(
      "set_sync_debug_mode",
      [](int mode) { ops::set_sync_debug_mode(static_cast<ops::SyncDebugMode>(mode)); },
      nb::arg("mode"));
  m.def("get_sync_debug_mode", [] { return static_cast<int>(ops::sync_debug_mode()); });
  m.def("pause_tracing", &tracing::pause,
        "Profilers record nothing of the devices until resume_tracing().");
  m.def("resume_tracing", &tracing::resume);
  m.def("scheduler_counters", &scheduler,
        "Counts what the scheduler has done so far in this process.");
}

}  // namespace openreg::bindings
