#include <nanobind/stl/string.h>

#include <string>

#include "backend/exception.h"
#include "backend/launch_counters.h"
#include "base/counters.h"
#include "bindings/bindings.h"
#include "ops/launch/sync_debug.h"
#include "runtime/current_schedule.h"
#include "runtime/trace.h"

namespace openreg::bindings {

namespace {

nb::dict values_of(std::span<Counter* const> counters) {
  nb::dict result;
  for (const auto* counter : counters) result[counter->name()] = counter->value();
  return result;
}

}  // namespace

void init_statistics(nb::module_& m) {
  m.def(
      "launch_stats", [] { return values_of(backend::launch_counters()); },
      "Counts how operators reached the device so far.");
  m.def("reset_launch_stats", [] {
    for (auto* counter : backend::launch_counters()) counter->reset();
  });
  m.def(
      "set_sync_debug_mode",
      [](int mode) { ops::set_sync_debug_mode(static_cast<ops::SyncDebugMode>(mode)); },
      nb::arg("mode"));
  m.def("get_sync_debug_mode", [] { return static_cast<int>(ops::sync_debug_mode()); });
  m.def(
      "set_schedule",
      [](const std::string& text) {
        const auto schedule = Schedule::parse(text);
        if (!schedule) return false;
        backend::translate_errors([&] { openreg::set_schedule(*schedule); });
        return true;
      },
      nb::arg("schedule"), ReleaseGil(), "False, and nothing has changed: this is not a schedule.");
  m.def("get_schedule",
        [] { return backend::translate_errors([] { return openreg::schedule().text(); }); });
  m.def("pause_tracing", &tracing::pause,
        "Profilers record nothing of the devices until resume_tracing().");
  m.def("resume_tracing", &tracing::resume);
  m.def(
      "scheduler_counters", [] { return values_of(scheduler_counters()); },
      "Counts what the scheduler has done so far in this process.");
}

}  // namespace openreg::bindings
