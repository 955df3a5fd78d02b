#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg::ops {

/// Whether an operator is not one of PyTorch's own; those compute as on the CPU by design.
bool is_foreign(const c10::OperatorHandle& op);

/// Tier 3: waits until the current stream of `device` is idle and runs the CPU's kernel of `cpu_op`
/// for `key` on the calling thread. The kernel gets aliases of the device tensors on the stack, and
/// its results become device tensors. `device` is the device of the call, and the kernel exists.
/// Throws as wait_for_device() does, and what the kernel throws. See Note [Tier 3].
void run_on_host(const c10::OperatorHandle& cpu_op, c10::Device device, c10::DispatchKey key,
                 torch::jit::Stack* stack);

}  // namespace openreg::ops
