#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "ops/cuda_memory/allocations.h"
#include "ops/cuda_memory/blas_workspaces.h"
#include "ops/cuda_memory/convolutions.h"
#include "ops/cuda_memory/gpu.h"

namespace openreg::bindings {

namespace {

namespace cuda_memory = ops::cuda_memory;
using cuda_memory::BlasLibrary;

const char* text_of(cuda_memory::Certainty certainty) {
  switch (certainty) {
    case cuda_memory::Certainty::kExact:
      return "exact";
    case cuda_memory::Certainty::kEstimate:
      return "estimate";
    case cuda_memory::Certainty::kUnknown:
      break;
  }
  return "unknown";
}

nb::list cuda_allocations() {
  nb::list entries;
  std::size_t number = 0;
  for (const auto& allocation : cuda_memory::all_allocations()) {
    const auto use = cuda_memory::use_of(number++);
    nb::dict entry;
    entry["ops"] = std::string(allocation.ops);
    entry["what"] = std::string(allocation.what);
    entry["bytes"] = std::string(allocation.bytes);
    entry["source"] = std::string(allocation.source);
    entry["certainty"] = text_of(allocation.certainty);
    entry["calls"] = use.calls;
    entry["allocated"] = use.bytes;
    entries.append(entry);
  }
  return entries;
}

BlasLibrary library(bool lt) { return lt ? BlasLibrary::kCublasLt : BlasLibrary::kCublas; }

}  // namespace

void init_cuda_memory(nb::module_& m) {
  m.def("cuda_allocations", &cuda_allocations,
        "What CUDA's operators allocate beside their results: operators, formula, source in ATen, "
        "how well it is known, and how often and how much so far in this process, without "
        "computing.");
  m.def(
      "convolution_use",
      [](int device) {
        const auto use = cuda_memory::convolution_use(device);
        return std::pair(use.largest, use.peak);
      },
      nb::arg("device"),
      "Bounds of cuDNN's workspaces for convolutions: of one, and of what is allocated with one.");
  m.def("reset_convolution_use", &cuda_memory::reset_convolution_use);
  m.def(
      "set_gpu",
      [](int major, int minor, int multiprocessors, int threads_per_multiprocessor) {
        const auto before = cuda_memory::gpu();
        cuda_memory::set_gpu({major, minor, multiprocessors, threads_per_multiprocessor});
        return std::tuple(before.major, before.minor, before.multiprocessors,
                          before.threads_per_multiprocessor);
      },
      nb::arg("major"), nb::arg("minor"), nb::arg("multiprocessors"),
      nb::arg("threads_per_multiprocessor"),
      "The GPU whose memory is reproduced without computing. Returns the one before.");
  m.def("reproduce_cuda_allocations", &cuda_memory::reproduce, nb::arg("enabled"),
        "False: operators allocate only what those of a device that computes do.");
  m.def("clear_blas_workspaces", &cuda_memory::clear_blas_workspaces, ReleaseGil());
  m.def(
      "blas_workspace_bytes",
      [](bool lt) { return cuda_memory::blas_workspace_bytes(library(lt)); }, nb::arg("lt"));
  m.def(
      "set_blas_workspace_bytes",
      [](bool lt, std::optional<std::size_t> bytes) {
        cuda_memory::set_blas_workspace_bytes(library(lt), bytes);
      },
      nb::arg("lt"), nb::arg("bytes").none());
}

}  // namespace openreg::bindings
