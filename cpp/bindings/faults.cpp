#include "backend/faults.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/exception.h"
#include "bindings/bindings.h"
#include "runtime/device_health.h"
#include "runtime/fault_table.h"
#include "runtime/remote_runner.h"

namespace openreg::bindings {

namespace {

std::shared_ptr<ArmedFault> arm_fault(const std::string& head,
                                      const std::vector<std::string>& options) {
  return backend::translate_errors([&] {
    faults::start();
    return faults::arm(FaultSpec::parse(head, options));
  });
}

}  // namespace

void init_faults(nb::module_& m) {
  nb::class_<ArmedFault>(m, "ArmedFault")
      .def_prop_ro("counted", [](const ArmedFault& fault) { return fault.counts().counted; })
      .def_prop_ro("fired", [](const ArmedFault& fault) { return fault.counts().fired; })
      .def_prop_ro("where", [](const ArmedFault& fault) { return fault.counts().where; })
      .def_prop_ro("seed", &ArmedFault::seed);
  m.def(
      "parse_fault",
      [](const std::string& head, const std::vector<std::string>& options) {
        return backend::translate_errors([&] { return FaultSpec::parse(head, options).text; });
      },
      nb::arg("head"), nb::arg("options"),
      "The specification as errors and the summary show it. Raises RuntimeError if it is "
      "malformed.");
  m.def("arm_fault", &arm_fault, nb::arg("head"), nb::arg("options"), ReleaseGil());
  m.def("disarm_fault", &faults::disarm, nb::arg("fault"), ReleaseGil());
  m.def("fault_summary", [] {
    backend::translate_errors([] { faults::start(); });
    return faults::summary();
  });
  m.def(
      "compile_fault",
      [] {
        backend::translate_errors([] { faults::start(); });
        return faults::count_and_describe({.point = FaultPoint::kCompile});
      },
      "Counts a compilation: what it fails with, or None.");
  m.def("reset_device", &backend::reset_device, nb::arg("device"), nb::arg("keep_memory"),
        ReleaseGil(), "Returns the errors that no call has raised.");
  m.def(
      "is_healthy", [](int device) { return health_of(device) == Health::kHealthy; },
      nb::arg("device"), "Whether the device, which exists, has neither failed nor is lost.");
  m.def(
      "executor_pid",
      [](int device) -> std::optional<int> {
        const auto* const remote = RemoteRunner::of(device);
        return remote ? remote->process() : std::nullopt;
      },
      nb::arg("device"),
      "The number of the process that runs the device's kernels, if there is one.");
}

}  // namespace openreg::bindings
