// The log of all allocations with their labels, for `fits`: columns of numbers, because objects of
// Python for a million entries take seconds and gigabytes.
#include <c10/util/Exception.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/allocation_label.h"
#include "backend/device.h"
#include "backend/memory_history.h"
#include "base/launch_site.h"
#include "bindings/bindings.h"
#include "memory/device_heap.h"
#include "memory/history.h"
#include "slot.h"

namespace openreg::bindings {

namespace {

memory::DeviceHeap& heap_with_log(int device) {
  TORCH_CHECK(backend::is_allocation_log(), "openreg: allocations are not recorded");
  return memory::device_heap(backend::resolve_device(static_cast<c10::DeviceIndex>(device)));
}

/// A column, as 64-bit integers: `value` of each entry and of its label, which may be empty.
template <class Value>
nb::bytearray column(const std::vector<memory::TraceEntry>& entries, Value value) {
  static const backend::AllocationLabel kNone;
  std::vector<std::int64_t> numbers;
  numbers.reserve(entries.size());
  for (const auto& entry : entries) {
    const auto* const label = static_cast<const backend::AllocationLabel*>(entry.context.get());
    numbers.push_back(static_cast<std::int64_t>(value(entry, label ? *label : kNone)));
  }
  return nb::bytearray(numbers.data(), numbers.size() * sizeof(std::int64_t));
}

nb::dict allocation_log(int device) {
  std::vector<memory::TraceEntry> entries;
  {
    const nb::gil_scoped_release release;
    entries =
        heap_with_log(device).locked([](memory::Heap& heap) { return heap.history().entries(); });
  }
  using Entry = memory::TraceEntry;
  using Label = backend::AllocationLabel;
  nb::dict columns;
  const auto add = [&](const char* name, auto value) { columns[name] = column(entries, value); };
  add("action", [](const Entry& entry, const Label&) { return entry.action; });
  add("address", [](const Entry& entry, const Label&) { return entry.address; });
  add("bytes", [](const Entry& entry, const Label&) { return entry.bytes; });
  add("tag", [](const Entry&, const Label& label) { return label.tag; });
  add("line", [](const Entry&, const Label& label) { return label.line; });
  add("backward", [](const Entry&, const Label& label) { return label.backward; });
  add("node", [](const Entry&, const Label& label) { return label.node; });
  add("thread_of_node", [](const Entry&, const Label& label) { return label.thread_of_node; });
  add("thread", [](const Entry&, const Label& label) { return label.thread; });
  add("next_node", [](const Entry&, const Label& label) { return label.next_node; });
  return columns;
}

std::size_t length(int device) {
  return heap_with_log(device).locked([](memory::Heap& heap) { return heap.history().size(); });
}

// Reads no element: a storage that shares its memory until it is written to stays as it is.
std::pair<int, std::uintptr_t> memory_of(nb::handle object) {
  TORCH_CHECK(THPVariable_Check(object.ptr()), "openreg: not a tensor");
  const auto& tensor = THPVariable_Unpack(object.ptr());
  if (!tensor.has_storage() || tensor.device().type() != backend::kDeviceType) return {-1, 0};
  const auto& data = tensor.storage().data_ptr();
  return {static_cast<int>(tensor.device().index()), reinterpret_cast<std::uintptr_t>(data.get())};
}

}  // namespace

void init_allocation_log(nb::module_& m) {
  m.def("begin_allocation_log", &backend::begin_allocation_log,
        "Records all allocations, frees and segments of all devices, instead of a history.");
  m.def("end_allocation_log", &backend::end_allocation_log, "Ends and discards the log.");
  m.def("is_allocation_log", &backend::is_allocation_log, "Whether the log is being recorded.");
  m.def("allocation_log", &allocation_log, nb::arg("device"),
        "The columns of the log, each as a buffer of 64-bit integers: backend::AllocationLabel "
        "describes those of allocations. Actions are the indices of `memory_actions`.");
  m.def("allocation_log_length", &length, nb::arg("device"), ReleaseGil());
  m.def(
      "set_allocation_tag", &backend::set_allocation_tag, nb::arg("tag"),
      "Labels the thread's allocations with this number, and returns the one before, at first 0.");
  m.def("line_of_program", &describe, nb::arg("line"),
        "A line of the log as text, \"train.py:12 in step\"; empty for 0.");
  m.def("memory_of", &memory_of, nb::arg("tensor"),
        "The device and the address of a tensor's storage; (-1, 0) if the device has none.");
  nb::list actions;
  for (const auto name : memory::kActionNames) actions.append(nb::str(name.data(), name.size()));
  m.attr("memory_actions") = actions;
}

}  // namespace openreg::bindings
