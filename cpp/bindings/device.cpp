#include "backend/device.h"

#include <ATen/Context.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "address_space/address_space.h"
#include "backend/exception.h"
#include "base/settings.h"
#include "bindings/bindings.h"
#include "runtime/callbacks.h"
#include "runtime/process.h"

namespace openreg::bindings {

namespace {

struct Uuid {
  std::array<std::uint8_t, 16> bytes;

  std::string text() const {
    std::string hexadecimal;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::array<char, 4> digits{};
      const bool begins_group = i == 4 || i == 6 || i == 8 || i == 10;
      std::snprintf(digits.data(), digits.size(), begins_group ? "-%02x" : "%02x", bytes[i]);
      hexadecimal += digits.data();
    }
    return hexadecimal;
  }
};

// The constants are those of the GPU whose layout of random numbers the device uses.
struct DeviceProperties {
  std::string name;
  std::size_t total_memory;
  unsigned multi_processor_count;
  int engines;
  Uuid uuid;
  int major = 9;
  int minor = 0;
  int warp_size = 32;
  int max_threads_per_block = 1024;
  int max_threads_per_multi_processor = 2048;
  int regs_per_multiprocessor = 65536;
  int shared_memory_per_block = 49152;
  int shared_memory_per_block_optin = 232448;
  int shared_memory_per_multiprocessor = 233472;
  int clock_rate = 1'000'000;  // kHz: _sleep()'s cycles
  bool is_integrated = true;
  bool is_multi_gpu_board = false;
};

// The first use: PyTorch's own once-flag calls the backend's hooks. A forked child inherits the
// flag as set, hence the check before it. Malformed settings are reported here, because PyTorch
// reads the number of devices where nothing may throw.
void initialize() {
  backend::translate_errors([] {
    check_usable();
    settings();
    at::globalContext().lazyInitDevice(backend::kDeviceType);
    AddressSpace::get();
    begin_use();
  });
}

// Note [PyTorch's flag]
// PyTorch keeps a flag of its own for the first use. It sets the flag when it has called
// torch.openreg._lazy_init(), before the first tensor and in some functions of torch.accelerator,
// but not for streams, events or kernels of ours; and while the flag is not set,
// torch.accelerator.synchronize(index) returns at once. So the flag is set here at every first use,
// unless _lazy_init() still has something to do, as it always has without computing: then PyTorch
// must call it.
std::atomic<bool> lazy_init_required{false};

void set_pytorchs_flag() noexcept {
  if (!lazy_init_required) torch::utils::set_requires_device_init(backend::kDeviceType, false);
}

// Devices of different processes are different devices.
Uuid uuid_of(int device) {
  Uuid uuid{{'o', 'p', 'e', 'n', 'r', 'e', 'g'}};
  uuid.bytes[9] = static_cast<std::uint8_t>(device);
  const auto process = static_cast<std::uint32_t>(::getpid());
  for (int i = 0; i < 4; ++i) uuid.bytes[15 - i] = static_cast<std::uint8_t>(process >> (8 * i));
  return uuid;
}

// One object per device, as in CUDA: two calls for a device return equal objects.
const DeviceProperties& device_properties(int index) {
  return backend::translate_errors([index]() -> const DeviceProperties& {
    static const auto& all = *new std::vector<DeviceProperties>([] {
      std::vector<DeviceProperties> made;
      made.reserve(static_cast<std::size_t>(device_count()));
      for (int device = 0; device < device_count(); ++device) {
        made.push_back({.name = "openreg",
                        .total_memory = AddressSpace::get().capacity(),
                        .multi_processor_count = std::thread::hardware_concurrency(),
                        .engines = settings().engines,
                        .uuid = uuid_of(device)});
      }
      return made;
    }());
    return all.at(backend::resolve_device(static_cast<c10::DeviceIndex>(index)));
  });
}

std::string describe(const DeviceProperties& p) {
  return "_OpenregDeviceProperties(name='" + p.name +
         "', total_memory=" + std::to_string(p.total_memory >> 20) +
         "MB, multi_processor_count=" + std::to_string(p.multi_processor_count) +
         ", engines=" + std::to_string(p.engines) + ", major=" + std::to_string(p.major) +
         ", minor=" + std::to_string(p.minor) + ", uuid=" + p.uuid.text() + ")";
}

}  // namespace

void init_device(nb::module_& m) {
  nb::class_<Uuid>(m, "_OpenregUuid")
      .def_prop_ro(
          "bytes",
          [](const Uuid& uuid) { return std::vector<int>(uuid.bytes.begin(), uuid.bytes.end()); },
          "The 16 numbers.")
      .def("__str__", &Uuid::text);

  nb::class_<DeviceProperties>(m, "_OpenregDeviceProperties")
      .def_ro("name", &DeviceProperties::name, "The device's name: 'openreg'.")
      .def_ro("total_memory", &DeviceProperties::total_memory, "Capacity of the device, in bytes.")
      .def_ro("multi_processor_count", &DeviceProperties::multi_processor_count,
              "Processor cores of the machine; the devices share them.")
      .def_ro(
          "engines", &DeviceProperties::engines,
          "Threads that run the commands of all devices (TORCH_OPENREG_ENGINES); another one runs "
          "long copies.")
      .def_ro("uuid", &DeviceProperties::uuid,
              "Identifies the device and its process; str() is its usual form.")
      .def_ro("major", &DeviceProperties::major, "Compute capability, with `minor`: 9.0.")
      .def_ro("minor", &DeviceProperties::minor, "Compute capability, with `major`: 9.0.")
      .def_ro("warp_size", &DeviceProperties::warp_size, "Threads in a warp.")
      .def_ro("max_threads_per_block", &DeviceProperties::max_threads_per_block,
              "Maximum number of threads in a block.")
      .def_ro("max_threads_per_multi_processor", &DeviceProperties::max_threads_per_multi_processor,
              "Maximum number of threads on a multiprocessor.")
      .def_ro("regs_per_multiprocessor", &DeviceProperties::regs_per_multiprocessor,
              "Registers of a multiprocessor.")
      .def_ro("shared_memory_per_block", &DeviceProperties::shared_memory_per_block,
              "Maximum shared memory of a block, in bytes.")
      .def_ro("shared_memory_per_block_optin", &DeviceProperties::shared_memory_per_block_optin,
              "Maximum shared memory of a block that asks for more, in bytes.")
      .def_ro("shared_memory_per_multiprocessor",
              &DeviceProperties::shared_memory_per_multiprocessor,
              "Shared memory of a multiprocessor, in bytes.")
      .def_ro("clock_rate", &DeviceProperties::clock_rate,
              "Rate of the cycles that torch.openreg._sleep() counts, in kHz.")
      .def_ro("is_integrated", &DeviceProperties::is_integrated,
              "True: the device shares the machine's memory.")
      .def_ro("is_multi_gpu_board", &DeviceProperties::is_multi_gpu_board, "False.")
      .def("__repr__", &describe);

  Callbacks callbacks;
  callbacks.begin_use = []() noexcept {
    if (computes()) set_pytorchs_flag();
  };
  install_callbacks(callbacks);

  m.def("init", &initialize, ReleaseGil(),
        "Initialises the device. Raises RuntimeError in a forked child of a process that used it, "
        "and if a setting is malformed.");
  m.def(
      "require_lazy_init",
      [](bool required) {
        lazy_init_required = required;
        if (!required) set_pytorchs_flag();
      },
      nb::arg("required"),
      "Whether PyTorch must call _lazy_init() before the next tensor, even if the device is in use "
      "by then. False: it need not, and the device is in use.");
  m.def(
      "after_fork",
      [] {
        if (in_bad_fork()) torch::utils::set_requires_device_init(backend::kDeviceType, true);
      },
      "Makes PyTorch call _lazy_init(), which raises, in a child that has inherited PyTorch's flag "
      "but cannot use the device.");
  m.def(
      "is_initialized", [] { return is_initialized() && !in_bad_fork(); },
      "The device has been used in this process, which is not a child of that one.");
  m.def(
      "in_bad_fork", [] { return in_bad_fork(); },
      "This process was forked from one that used the device.");
  m.def("settings", &setting_texts,
        "The variables of all settings, and their values or defaults as text; empty if there is "
        "none, or if it depends on the machine.");
  m.def(
      "device_count", [] { return device_count(); },
      "Number of devices; 0 if the settings are malformed. Never raises.");
  m.def(
      "current_device", [] { return static_cast<int>(backend::current_device()); },
      "The calling thread's current device. Unlike PyTorch's function, this does not count as a "
      "use of the device.");
  m.def("device_properties", &device_properties, nb::arg("index"), nb::rv_policy::reference,
        ReleaseGil());
  m.def(
      "end_of_python",
      [] {
        restrict_to_this_thread();
        wait_for_autograd_threads();
      },
      ReleaseGil(),
      "Gives queued commands one second. Afterwards only the calling thread may use the device. "
      "Returns when autograd's threads are idle.");

  // Before libtorch's static objects are destroyed. If Python has no room for it, the runtime's
  // handler does it at first use.
  static_cast<void>(Py_AtExit([] { shutdown(); }));
}

}  // namespace openreg::bindings
