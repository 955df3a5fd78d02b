#include "bindings/bindings.h"
#include "runtime/stream.h"

namespace openreg::bindings {

namespace {

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

void init_counters(nb::module_& m) {
  m.def("scheduler_counters", &scheduler,
        "What the scheduler has done so far in this process, by name.");
}

}  // namespace openreg::bindings
