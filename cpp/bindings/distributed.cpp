// PyTorch binds c10d by pybind11, so this file also uses pybind11 for objects of its classes.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/once.h"
#include "bindings/bindings.h"
#include "distributed/communicators.h"
#include "distributed/fake_peers.h"
#include "distributed/process_group.h"

namespace openreg::bindings {

namespace {

namespace py = pybind11;
using distributed::FakePeers;
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

/// A store of a fake world. A key that does not exist will not: to wait for it is an error.
class FakeStore final : public c10d::HashStore {
 public:
  std::vector<std::uint8_t> get(const std::string& key) override {
    expect({key});
    return HashStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { expect(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    expect(keys);
  }

 private:
  void expect(const std::vector<std::string>& keys) {
    for (const auto& key : keys) {
      if (check({key})) continue;
      C10_THROW_ERROR(DistStoreError, "openreg: no rank of this fake world will set the key \"" +
                                          key + "\" of the store: only this process exists");
    }
  }
};

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
        .def_property_readonly(
            "options",
            [](ProcessGroupOccl& group) {
              return c10::static_intrusive_pointer_cast<GroupOptions>(group.getBackendOptions());
            })
        // What new_group() calls on ranks outside of the new group, if the group has a device:
        // there are no communicators to split.
        .def("perform_nocolor_split", [](ProcessGroupOccl&, const c10::Device&) {});
    py::class_<FakePeers, c10::intrusive_ptr<FakePeers>, c10d::Backend>(scope, "FakeGloo")
        .def(py::init([](const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                         std::chrono::milliseconds timeout, bool enable_reconfigure) {
               TORCH_CHECK(!enable_reconfigure, "openreg: a fake world cannot be reconfigured");
               return c10::make_intrusive<FakePeers>(rank, size, timeout);
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("enable_reconfigure") = false)  // which torch 2.13 does not give
        .def(py::init([](const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                         const c10::intrusive_ptr<c10d::Backend::Options>& options) {
               return c10::make_intrusive<FakePeers>(rank, size, options->timeout);
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
        .def_property_readonly("options", &FakePeers::getBackendOptions);
    py::class_<FakeStore, c10::intrusive_ptr<FakeStore>, c10d::HashStore>(scope, "FakeStore")
        .def(py::init([] { return c10::make_intrusive<FakeStore>(); }));
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
  const auto group = c10::make_intrusive<ProcessGroupOccl>(
      make_gloo.is_none() ? nullptr : made_by(nb::borrow(make_gloo)), options.store,
      options.group_rank, options.group_size, std::move(own));
  return nb::steal(py::cast(group).release().ptr());
}

nb::object class_named(const char* name) {
  define_classes();
  return nb::module_::import_(OPENREG_PACKAGE "._C").attr(name);
}

}  // namespace

void init_distributed(nb::module_& m) {
  m.def(
      "process_group_class", [] { return class_named("ProcessGroupOccl"); },
      "The class of what make_process_group() returns. torch.distributed must have been imported.");
  m.def(
      "fake_gloo_class", [] { return class_named("FakeGloo"); },
      "What is used in place of c10d's ProcessGroupGloo in a fake world.");
  m.def(
      "make_fake_store", [] { return class_named("FakeStore")(); },
      "Returns a torch.distributed Store for a fake world: a get() or wait() for a key that does "
      "not "
      "exist raises.");
  m.def(
      "communicators",
      [] {
        nb::list found;
        for (const auto& each : distributed::most_communicators())
          found.append(nb::make_tuple(each.device, each.ranks, each.collectives, each.peers));
        return found;
      },
      "What NCCL would have connected when there was most, since the last reset: for each device "
      "and group the ranks, whether it has had a collective, and with how many ranks it has "
      "exchanged messages.");
  m.def("reset_communicators", &distributed::reset_most_communicators);
  m.def("make_process_group", &make_process_group, nb::arg("options"), nb::arg("make_gloo").none(),
        "Returns a torch.distributed Backend \"occl\" for c10d's DistributedBackendOptions. "
        "make_gloo(store, rank, size, timeout) makes the Gloo backend that it uses, at first use; "
        "None: the other ranks do not exist.");
}

}  // namespace openreg::bindings
