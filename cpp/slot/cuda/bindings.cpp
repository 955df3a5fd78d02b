#include "bindings/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/Storage.h>
#include <cstddef>

#include "backend/exception.h"
#include "backend/storage.h"
#include "foreign_kernels.h"
#include "graph_trees.h"

namespace openreg::bindings {

void init_slot(nb::module_& m) {
  // PyTorch's own, in a build without CUDA, raises.
  m.def(
      "resize_storage",
      [](nb::handle storage, std::size_t bytes) {
        backend::translate_errors(
            [&] { backend::resize_storage(THPStorage_Unpack(storage.ptr()), bytes); });
      },
      nb::arg("storage"), nb::arg("bytes"), "UntypedStorage.resize_(), in stream order.");
  m.def(
      "add_attribute",
      [](nb::handle type, const char* name, nb::handle value) {
        auto* const object = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (PyDict_SetItemString(object->tp_dict, name, value.ptr()) != 0) throw nb::python_error();
        PyType_Modified(object);
      },
      nb::arg("type"), nb::arg("name"), nb::arg("value"),
      "Sets an attribute of one of PyTorch's classes in C, which Python code cannot.");
  m.def("libraries_were_loaded", &backend::libraries_were_loaded,
        "Whether libraries that use PyTorch have been loaded since the last call.");
  m.def("replace_foreign_kernels", &backend::replace_foreign_kernels,
        "Replaces kernels of CUDA that libraries have registered, and returns their operators.");
  init_graph_trees(m);
}

}  // namespace openreg::bindings
