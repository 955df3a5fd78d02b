#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

namespace openreg::ops {

/// Whether a command may take the place of a composite operator's parts: all tensors among the
/// arguments are the device's own and strided, and nothing between autograd and the backend wants
/// to see the parts (autocast, modes, transforms of torch.func).
bool is_plain_call(c10::ArrayRef<c10::IValue> arguments);

/// Whether autograd, forward or backward, needs the parts.
bool needs_gradient(c10::ArrayRef<c10::IValue> arguments);

/// Runs PyTorch's composite kernel, which is the CPU's as well as every other device's.
void run_composite(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Runs a composite operator as one command, under autograd: the caller has made sure that no
/// gradient is needed.
void run_as_one_command(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace openreg::ops
