#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <optional>
#include <string>

#include "backend/graph.h"
#include "backend/stream.h"
#include "bindings/bindings.h"
#include "memory/pool.h"
#include "runtime/capture.h"

namespace openreg::bindings {

namespace {

using backend::CapturableGraph;

at::GraphCaptureMode mode_of(const std::string& name) {
  if (name == "global") return at::GraphCaptureMode::Global;
  if (name == "thread_local") return at::GraphCaptureMode::ThreadLocal;
  if (name == "relaxed") return at::GraphCaptureMode::Relaxed;
  TORCH_CHECK(false, "openreg: unknown capture_error_mode (got \"", name,
              "\", expected \"global\", \"thread_local\" or \"relaxed\")");
}

/// Runs without the GIL, and turns warnings into Python's.
template <class F>
void run_with_warnings(F&& work) {
  torch::PyWarningHandler warnings;  // its destructor needs the GIL
  try {
    const nb::gil_scoped_release release;
    work();
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

void capture_end(CapturableGraph& graph) {
  run_with_warnings([&] { graph.capture_end(); });
}

void debug_dump(CapturableGraph& graph, const std::string& path) {
  run_with_warnings([&] { graph.debug_dump(path); });
}

void capture_begin(CapturableGraph& graph, std::optional<memory::PoolId> pool,
                   const std::string& mode) {
  graph.capture_begin(pool.value_or(memory::PoolId{0, 0}), mode_of(mode));
}

void register_generator_state(CapturableGraph& graph, nb::handle generator) {
  TORCH_CHECK_TYPE(THPGenerator_Check(generator.ptr()),
                   "openreg: register_generator_state() takes a torch.Generator");
  graph.register_generator_state(reinterpret_cast<THPGenerator*>(generator.ptr())->cdata);
}

}  // namespace

void init_graphs(nb::module_& m) {
  nb::class_<CapturableGraph>(m, "Graph")
      .def(
          "__init__",
          [](CapturableGraph* self, bool keep_graph) {
            new (self) CapturableGraph(at::GraphImplArgs{keep_graph});
          },
          nb::arg("keep_graph"))
      .def("capture_begin", &capture_begin, nb::arg("pool").none(), nb::arg("mode"), ReleaseGil())
      .def("capture_end", &capture_end)
      .def("instantiate", &CapturableGraph::instantiate, ReleaseGil())
      .def("replay", &CapturableGraph::replay, ReleaseGil())
      .def("reset", &CapturableGraph::reset, ReleaseGil())
      .def("pool", &CapturableGraph::pool)
      .def("enable_debug_mode", &CapturableGraph::enable_debug_mode)
      .def("debug_dump", &debug_dump, nb::arg("path"))
      .def("register_generator_state", &register_generator_state, nb::arg("generator"));
  m.def(
      "graph_pool_handle", [] { return memory::new_pool_id(/*of_graph=*/false); },
      "Returns the id of a new pool, for graphs that are to share one.");
  m.def(
      "is_current_stream_capturing",
      [] { return is_capturing() && capture_of(backend::current_stream()) != 0; },
      "Does not initialise the device.");
  m.def("is_capturing", &is_capturing, "Whether any stream is being captured, by any thread.");
  m.def("last_capture", &last_capture,
        "The number of the latest capture; those that begin later have greater numbers.");
  m.def(
      "abandon_captures", &abandon_captures, nb::arg("after"), ReleaseGil(),
      "Ends the captures under way that began after this one, of all threads, and describes them.");
}

}  // namespace openreg::bindings
