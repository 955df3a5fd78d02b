// PyTorch binds c10d by pybind11, so this file also uses pybind11 for objects of its classes.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/once.h"
#include "bindings/bindings.h"
#include "distributed/process_group.h"

namespace openreg::bindings {

namespace {

namespace py = pybind11;
using distributed::ProcessGroupOccl;
using GroupOptions = ProcessGroupOccl::GroupOptions;

/// Wraps a Python function so that any thread may call it.
ProcessGroupOccl::MakeGloo made_by(nb::object function) {
  // The last reference may be released on a thread that does not hold the GIL.
  const auto shared = std::shared_ptr<nb::object>(new nb::object(std::move(function)), [](auto* f) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire gil;
    delete f;
  });
  return [shared](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  const c10d::Backend::Options& options) {
    const nb::gil_scoped_acquire gil;
    const auto made =
        py::reinterpret_borrow<py::function>(shared->ptr())(store, rank, size, options.timeout);
    return made.cast<c10::intrusive_ptr<c10d::Backend>>();
  };
}

/// Python classes for what PyTorch requires of a backend only from Python: split_group() copies the
/// options. Defined at first use, when their base classes exist.
void define_classes() {
  static const Once once([] {
    const auto scope = py::module_::import(OPENREG_PACKAGE "._C");
    py::class_<GroupOptions, c10::intrusive_ptr<GroupOptions>, c10d::Backend::Options>(
        scope, "ProcessGroupOcclOptions")
        .def(py::init([](std::chrono::milliseconds timeout) {
               return c10::make_intrusive<GroupOptions>("occl", timeout);
             }),
             py::arg("timeout"))
        .def("__deepcopy__", [](const GroupOptions& options, const py::dict&) {
          return c10::make_intrusive<GroupOptions>(options);
        });
    py::class_<ProcessGroupOccl, c10::intrusive_ptr<ProcessGroupOccl>, c10d::Backend>(
        scope, "ProcessGroupOccl")
        .def_property_readonly("options", [](ProcessGroupOccl& group) {
          return c10::static_intrusive_pointer_cast<GroupOptions>(group.getBackendOptions());
        });
  });
}

nb::object make_process_group(nb::handle given, nb::handle make_gloo) {
  define_classes();
  const auto& options = py::handle(given.ptr()).cast<const c10d::DistributedBackendOptions&>();
  auto own = c10::make_intrusive<GroupOptions>(
      "occl", std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout));
  own->group_name = options.group_id;
  own->global_ranks_in_group.assign(options.global_ranks_in_group.begin(),
                                    options.global_ranks_in_group.end());
  const auto group =
      c10::make_intrusive<ProcessGroupOccl>(made_by(nb::borrow(make_gloo)), options.store,
                                            options.group_rank, options.group_size, std::move(own));
  return nb::steal(py::cast(group).release().ptr());
}

nb::object process_group_class() {
  define_classes();
  return nb::module_::import_(OPENREG_PACKAGE "._C").attr("ProcessGroupOccl");
}

}  // namespace

void init_distributed(nb::module_& m) {
  m.def(
      "process_group_class", &process_group_class,
      "The class of what make_process_group() returns. torch.distributed must have been imported.");
  m.def("make_process_group", &make_process_group, nb::arg("options"), nb::arg("make_gloo"),
        "Returns a torch.distributed Backend \"occl\" for c10d's DistributedBackendOptions. "
        "make_gloo(store, rank, size, timeout) makes the Gloo backend that it uses, at first use.");
}

}  // namespace openreg::bindings
