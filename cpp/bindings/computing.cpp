#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <torch/csrc/utils/device_lazy_init.h>

#include <optional>
#include <string>
#include <utility>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "base/error.h"
#include "base/launch_site.h"
#include "base/settings.h"
#include "bindings/bindings.h"
#include "memory/value_tracker.h"
#include "ops/cuda_memory/attention.h"

namespace openreg::bindings {

namespace {

void set_compute_mode(bool computes) {
  backend::translate_errors([&] {
    if (computes == openreg::computes()) return;
    if (AddressSpace::get_if_reserved() != nullptr)
      throw Error("openreg: the compute mode cannot change after the first use of device memory");
    choose_computing(computes);
    // PyTorch calls _lazy_init() before the next tensor, again if it has.
    if (!computes) torch::utils::set_requires_device_init(backend::kDeviceType, true);
  });
}

nb::dict compute_report() {
  nb::dict result;
  const auto* const tracker = memory::ValueTracker::get();
  const auto report = tracker ? tracker->report() : memory::ValueTracker::Report();
  result["computed"] = report.computed;
  result["skipped"] = report.skipped;
  nb::list reads;
  for (const auto& read : report.reads) {
    nb::dict each;
    each["line"] = describe(read.site);
    each["op"] = read.op;
    each["count"] = read.count;
    reads.append(each);
  }
  result["unknown_reads"] = reads;
  return result;
}

void assume(std::optional<double> nonzero, bool balanced_routing) {
  if (auto* const tracker = memory::ValueTracker::get())
    tracker->assume({.nonzero = nonzero, .balanced_routing = balanced_routing});
}

}  // namespace

void init_computing(nb::module_& m) {
  m.def(
      "computes", [] { return backend::translate_errors([] { return computes(); }); },
      "Whether the devices compute.");
  m.def("set_compute_mode", &set_compute_mode, nb::arg("computes"));
  m.def("register_attention", &ops::cuda_memory::register_attention,
        "Without computing: gives scaled_dot_product_attention CUDA's operators.");
  m.def("assume", &assume, nb::arg("nonzero").none(), nb::arg("balanced_routing"),
        "What is assumed of values that are not computed, from now on.");
  m.def("assumptions", [] {
    const auto* const tracker = memory::ValueTracker::get();
    const auto now = tracker ? tracker->assumptions() : memory::Assumptions();
    return std::pair(now.nonzero, now.balanced_routing);
  });
  m.def("compute_report", &compute_report,
        "Without computing: how many commands ran and did not run, and which lines read values "
        "that nobody computed.");
}

}  // namespace openreg::bindings
