#include "bindings/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Storage.h>
#include <cstddef>

#include "backend/exception.h"
#include "backend/storage.h"
#include "cuda/foreign_kernels.h"
#include "cuda/memory_bindings.h"

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
      "elapsed_time",
      [](nb::handle start, nb::handle end) {
        const auto event = [](nb::handle of) -> c10::Event& {
          TORCH_CHECK_TYPE(THPEvent_Check(of.ptr()), "openreg: elapsed_time() takes events");
          return reinterpret_cast<THPEvent*>(of.ptr())->event;
        };
        return event(start).elapsedTime(event(end));
      },
      nb::arg("start"), nb::arg("end"),
      "Event.elapsed_time(), also of a subclass, which PyTorch's own refuses.");
  m.def("libraries_were_loaded", &backend::libraries_were_loaded,
        "Whether libraries that use PyTorch have been loaded since the last call.");
  m.def("replace_foreign_kernels", &backend::replace_foreign_kernels,
        "Replaces kernels of CUDA that libraries have registered, and returns their operators.");
  init_dlpack_exchange(m);
  init_graph_trees(m);
}

}  // namespace openreg::bindings
