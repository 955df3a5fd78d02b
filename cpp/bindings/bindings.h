#pragma once

#include <nanobind/nanobind.h>

namespace openreg::bindings {

namespace nb = nanobind;

// One function per topic. Each adds its part to the extension module `_C`.
void init_allocation_log(nb::module_& m);
void init_compiled(nb::module_& m);
void init_errors(nb::module_& m);
void init_device(nb::module_& m);
void init_faults(nb::module_& m);
void init_distributed(nb::module_& m);
void init_memory(nb::module_& m);
void init_memory_snapshot(nb::module_& m);
void init_races(nb::module_& m);
void init_random(nb::module_& m);
void init_graphs(nb::module_& m);
void init_host_memory(nb::module_& m);
void init_ipc(nb::module_& m);
void init_launch_sites(nb::module_& m);
/// Adds what only this slot of PyTorch needs. Defined in cpp/slot.
void init_slot(nb::module_& m);
void init_computing(nb::module_& m);
void init_cuda_memory(nb::module_& m);
void init_statistics(nb::module_& m);
void init_streams(nb::module_& m);
void init_waits(nb::module_& m);

/// Whether the calling thread is Python's main thread, the only one that runs signal handlers and
/// pending calls. Async-signal-safe.
bool is_main_thread() noexcept;
/// Whether the interpreter is ending. Async-signal-safe.
bool interpreter_is_finalizing() noexcept;

/// Returns when the autograd engine's device threads are idle and hold no Python objects, so that
/// the interpreter may end. For exit, after shutdown(): from then on no backward pass can proceed.
/// Does nothing if autograd was never used. Gives up after ten seconds if a thread does not become
/// idle. Must be called without the GIL.
void wait_for_autograd_threads() noexcept;

/// The call guard of every function that can wait or take a lock: other threads can use the
/// interpreter until it returns.
using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

/// A statistic, with the names of torch.cuda.memory_stats: PyTorch's Stat, or a memory::Stat.
template <class Stat>
nb::dict stat_dict(const Stat& stat) {
  nb::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

}  // namespace openreg::bindings
