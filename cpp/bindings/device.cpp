#include "backend/device.h"

#include <ATen/Context.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>
#include <thread>

#include "backend/exception.h"
#include "bindings/autograd_threads.h"
#include "bindings/bindings.h"
#include "runtime/address_space.h"
#include "runtime/process.h"
#include "runtime/settings.h"

namespace openreg::bindings {

namespace {

struct DeviceProperties {
  std::string name;
  std::size_t total_memory;
  unsigned multi_processor_count;
  int engines;
};

// First use: PyTorch's own once-flag calls the backend's hooks. A forked child inherits the flag as
// set, hence the check before it; malformed settings are reported here, since PyTorch asks for the
// number of devices where nothing may throw.
void initialize() {
  backend::translate_errors([] {
    check_usable();
    settings();
    at::globalContext().lazyInitDevice(backend::kDeviceType);
    AddressSpace::get();
  });
}

DeviceProperties device_properties(int index) {
  initialize();
  return backend::translate_errors([index] {
    backend::resolve_device(static_cast<c10::DeviceIndex>(index));
    return DeviceProperties{"openreg", AddressSpace::get().capacity(),
                            std::thread::hardware_concurrency(), settings().engines};
  });
}

std::string describe(const DeviceProperties& p) {
  return "_OpenregDeviceProperties(name='" + p.name +
         "', total_memory=" + std::to_string(p.total_memory >> 20) +
         "MB, multi_processor_count=" + std::to_string(p.multi_processor_count) +
         ", engines=" + std::to_string(p.engines) + ")";
}

}  // namespace

void init_device(nb::module_& m) {
  nb::class_<DeviceProperties>(m, "_OpenregDeviceProperties")
      .def_ro("name", &DeviceProperties::name, "The device's name: 'openreg'.")
      .def_ro("total_memory", &DeviceProperties::total_memory, "Capacity of the device, in bytes.")
      .def_ro("multi_processor_count", &DeviceProperties::multi_processor_count,
              "Processor cores of the machine, which the devices share.")
      .def_ro(
          "engines", &DeviceProperties::engines,
          "Threads that run the commands of all devices (TORCH_OPENREG_ENGINES); one more makes "
          "long copies.")
      .def("__repr__", &describe);

  m.def("init", &initialize, ReleaseGil(),
        "First use of the device. RuntimeError in a forked child of a process that used it, or if "
        "a setting is malformed.");
  m.def(
      "is_initialized", [] { return is_initialized(); },
      "The device has been used in this process.");
  m.def(
      "in_bad_fork", [] { return in_bad_fork(); },
      "This process was forked from one that used the device.");
  m.def(
      "device_count", [] { return device_count(); },
      "Number of devices; 0 where the settings are malformed. Never raises.");
  m.def(
      "current_device", [] { return static_cast<int>(backend::current_device()); },
      "The calling thread's current device. Unlike PyTorch's function it does not count as a use "
      "of the device.");
  m.def("device_properties", &device_properties, nb::arg("index"), ReleaseGil());
  m.def(
      "shutdown",
      [] {
        shutdown();
        settle_autograd_threads();
      },
      ReleaseGil(),
      "Lets the running commands end, drops the queued ones, and takes no more. Returns when "
      "autograd's threads are idle. Idempotent.");

  // Python's atexit functions run before the interpreter and libtorch's statics go.
  nb::module_::import_("atexit").attr("register")(m.attr("shutdown"));
}

}  // namespace openreg::bindings
