#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "backend/race_detection.h"
#include "base/device_name.h"
#include "base/launch_site.h"
#include "bindings/bindings.h"
#include "memory/pinned/pinned_guard.h"
#include "ops/launch/memory_of_command.h"
#include "slot.h"

namespace openreg::bindings {

namespace {

PyObject* error_class = nullptr;  // Python's; the module owns it

struct UnsynchronizedAccessError final : torch::PyTorchError {
  using PyTorchError::PyTorchError;
  PyObject* python_type() override { return error_class; }
};

void throw_race_error(const std::string& message) { throw UnsynchronizedAccessError(message); }

void warn(const std::string& message) {
  c10::warn(c10::Warning(c10::UserWarning(), {}, message, /*verbatim=*/true));
}

/// A report on its way from the signal handler to the interpreter.
struct Report {
  std::atomic<bool> in_use{false};
  bool warns = false;
  std::array<char, 1024> text{};
};
std::array<Report, 4> reports;

int raise_report(void* pending) {
  auto& report = *static_cast<Report*>(pending);
  std::string text = report.text.data();
  const bool warns = report.warns;
  report.in_use = false;
  // The interpreter has gone on, but no further than to the next call or loop.
  if (const auto line = describe(launch_site()); !line.empty())
    text += ". The access was at " + line + ", or just before it";
  if (auto* const detector = memory::RaceDetector::get()) detector->add_report(text);
  if (warns) return PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1);
  PyErr_SetString(error_class, text.c_str());
  return -1;
}

// Whether the interpreter can raise an exception for what this thread has just done: the main
// thread does it in a pending call, soon after the access. A thread of at::parallel_for works for
// another one, which waits for it and is usually the main thread. The other threads of Python go on
// with what they have read for as long as the main thread waits for something else.
bool can_raise_here() noexcept {
  if (!Py_IsInitialized() || interpreter_is_finalizing()) return false;
  if (is_main_thread()) return true;
  return at::in_parallel_region() && PyGILState_GetThisThreadState() == nullptr;
}

// Called by a signal handler, for a fault at an instruction that accesses pinned memory
// (PinnedGuard::Raise). Py_AddPendingCall needs no GIL. It takes a lock of the interpreter, which
// only code holds that accesses no pinned memory: another thread, if any.
bool raise_soon(const char* text, memory::PinnedGuard::Reaction how) noexcept {
  if (!can_raise_here()) return false;
  for (auto& report : reports) {
    if (report.in_use.exchange(true)) continue;
    const auto length = std::min(std::strlen(text), report.text.size() - 1);
    std::memcpy(report.text.data(), text, length);
    report.text[length] = '\0';
    report.warns = how == memory::PinnedGuard::Reaction::kWarn;
    if (Py_AddPendingCall(&raise_report, &report) == 0) return true;
    report.in_use = false;
    return false;
  }
  return false;
}

}  // namespace

void init_races(nb::module_& m) {
  const auto name = std::string(kModule) + ".UnsynchronizedAccessError";
  error_class = PyErr_NewExceptionWithDoc(
      name.c_str(),
      "Two accesses to the same memory, at least one of them a write, are unsynchronized.\n\n"
      "Raised by the call that makes the second access, before it is submitted, if races are "
      "detected (`set_race_detection_mode`). The message names both accesses.",
      PyExc_RuntimeError, nullptr);
  if (!error_class) throw nb::python_error();
  m.attr("UnsynchronizedAccessError") = nb::borrow(error_class);
  backend::set_race_error(&throw_race_error);
  memory::PinnedGuard::set_reporter(&raise_soon);
  memory::install_race_hooks({.name = &ops::name_access, .warn = &warn});
  m.def(
      "set_race_detection_mode",
      [](int mode) { backend::set_race_detection_mode(static_cast<RaceDetectionMode>(mode)); },
      nb::arg("mode"), ReleaseGil());
  m.def(
      "take_race_reports",
      [] {
        auto* const detector = memory::RaceDetector::get();
        return detector ? detector->take_reports() : std::vector<std::string>();
      },
      ReleaseGil(), "The reports of races since the last call, at most 16.");
  m.def("get_race_detection_mode", [] { return static_cast<int>(backend::race_detection_mode()); });
}

}  // namespace openreg::bindings
