// What the Python package needs of this library, as operators: torch.ops.torch_acme. They need no
// headers of Python.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <future>

#include "device.h"
#include "driver/memory.h"
#include "generator.h"

namespace torch_acme {

namespace {

bool is_initialized() {
  for (int device = 0; device < driver::kDevices; ++device)
    if (driver::is_used(device)) return true;
  return false;
}

// PyTorch has a thread for the backward passes of each device. It may still hold Python objects
// when backward() has returned, and before Python 3.14 the process aborts if it releases them while
// the interpreter ends. A backward pass that Python has not started holds none, and runs after all
// others.
void settle_autograd() {
  if (driver::in_bad_fork()) return;
  std::async(std::launch::async, [] {
    for (int i = 0; i < driver::kDevices; ++i) {
      if (!driver::is_used(i)) continue;
      const c10::Device device(kAcme, static_cast<c10::DeviceIndex>(i));
      (at::ones(1, device).requires_grad_() * 1).backward();
      driver::synchronize_device(i);
    }
  }).get();
}

}  // namespace

TORCH_LIBRARY(torch_acme, m) {
  m.def("is_initialized", &is_initialized);
  m.def("in_bad_fork", [] { return driver::in_bad_fork(); });
  m.def("default_generator", [](std::int64_t device) {
    return default_generator(checked(static_cast<c10::DeviceIndex>(device)));
  });
  m.def("settle_autograd", &settle_autograd);
}

}  // namespace torch_acme
