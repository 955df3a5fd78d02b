#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg::ops {

/// Runs the CPU's kernel of an operator over device memory: as a command (boxed.h), or, where that
/// cannot be, on the calling thread: that waits until the current stream is idle, gives the kernel
/// aliases of the device tensors on the stack, and makes its results device tensors again. `op` is
/// whom errors name; `cpu_op` is what is run: the stack holds its arguments. Throws
/// NotImplementedError where the CPU has no kernel.
void run_cpu_kernel(const c10::OperatorHandle& op, const c10::OperatorHandle& cpu_op,
                    torch::jit::Stack* stack);

/// Runs the CPU's kernel for `cpu_key` on the calling thread, as above: for tensors whose dispatch
/// key is not that of strided ones.
void run_on_this_thread(const c10::OperatorHandle& op, c10::DispatchKey cpu_key,
                        torch::jit::Stack* stack);

/// The boxed fallback: every operator that nothing else covers.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace openreg::ops
