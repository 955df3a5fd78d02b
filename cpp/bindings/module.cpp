#include "bindings/bindings.h"

NB_MODULE(_C, m) {
  namespace bindings = openreg::bindings;
  // Objects that a program still holds when it ends (graphs) are not leaks.
  openreg::bindings::nb::set_leak_warnings(false);
  m.doc() =
      "The functions that torch.openreg needs from C++ and that PyTorch does not bind itself.";
  bindings::init_errors(m);
  bindings::init_waits(m);
  bindings::init_launch_sites(m);
  bindings::init_races(m);
  bindings::init_device(m);
  bindings::init_memory(m);
  bindings::init_memory_snapshot(m);
  bindings::init_allocation_log(m);
  bindings::init_faults(m);
  bindings::init_random(m);
  bindings::init_graphs(m);
  bindings::init_host_memory(m);
  bindings::init_ipc(m);
  bindings::init_computing(m);
  bindings::init_cuda_memory(m);
  bindings::init_statistics(m);
  bindings::init_streams(m);
  bindings::init_distributed(m);
  bindings::init_compiled(m);
  bindings::init_slot(m);
}
