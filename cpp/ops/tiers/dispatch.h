#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "base/words.h"

namespace openreg::ops {

/// Chooses the tier of a call: runs the CPU's kernel over device memory, as a command (boxed.h) or,
/// if that is not possible, on the calling thread (host_tier.h). Errors name `op`; `cpu_op` is run,
/// and the stack holds its arguments. Throws c10::NotImplementedError if the CPU has no kernel and
/// call_fake() does nothing, and for operators outside aten with TORCH_OPENREG_CPU_FALLBACK=0.
void dispatch_to_tier(const c10::OperatorHandle& op, const c10::OperatorHandle& cpu_op,
                      torch::jit::Stack* stack);

/// Runs the CPU's kernel for `cpu_key` on the calling thread, for tensors whose dispatch key is not
/// that of strided ones. Throws as dispatch_to_tier() does.
void run_on_this_thread(const c10::OperatorHandle& op, c10::DispatchKey cpu_key,
                        torch::jit::Stack* stack);

/// Without computing, an operator without a kernel needs none if it has a function for its results:
/// launch_fake(). False, and nothing has changed: that is not so.
bool call_fake(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Registers a function for operators: "trace abs.out".
template <c10::KernelFunction::BoxedKernelFunction* kFunction>
void impl_boxed(torch::Library& library, std::string_view names) {
  for (const auto name : words_of(names))
    library.impl(std::string(name).c_str(), torch::CppFunction::makeFromBoxedFunction<kFunction>());
}

/// The boxed fallback, for every operator that nothing else covers.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace openreg::ops
