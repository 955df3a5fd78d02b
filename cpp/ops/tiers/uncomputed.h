#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <optional>

#include "memory/value_tracker.h"

namespace openreg::ops {

/// Runs the operator's meta kernel, with meta tensors like those on the stack; the results replace
/// the arguments. False, and nothing has changed: there is none, or it refuses the arguments.
bool run_meta_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Without computing, in place of an operator of tier 3: makes its results, whose values are not
/// computed, and returns nothing. If the operator is to be run, because its arguments are known, or
/// small and there is no other way to learn the shapes: what is known of its results afterwards.
/// Throws c10::Error if the shapes depend on values that are not computed and that the user assumes
/// nothing of, or if the operator would have to compute much.
std::optional<memory::Values> run_uncomputed(const c10::OperatorHandle& op, c10::Device device,
                                             torch::jit::Stack* stack);

/// Without computing, for an operator that has no kernel for the device or the CPU: a command that
/// does nothing, and the results that its meta kernel (register_fake) returns. False, and nothing
/// has changed: it has none. Throws what the meta kernel throws.
bool launch_fake(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack);

/// Notes what is known of an operator's results and of the arguments that it has written.
void note_values(const c10::OperatorHandle& op, torch::jit::Stack& stack, memory::Values values);

}  // namespace openreg::ops
