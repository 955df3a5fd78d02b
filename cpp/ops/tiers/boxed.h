#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace openreg::ops {

/// Tier 2: launches the CPU's kernel of `op` as a command, with the arguments on the stack, and
/// replaces them by its results, if the operator's schema and results allow that. False: this
/// operator, or this call, is left to tier 3; the stack is unchanged, but out arguments may have
/// been resized. `device` is the device of the call, and the tensors have been checked against it.
/// Thread safe. See Note [Tier 2] in boxed_plan.cpp.
bool launch_boxed(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack);

}  // namespace openreg::ops
