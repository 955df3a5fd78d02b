#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <span>

#include "ops/wire/arguments.h"
#include "runtime/command.h"

namespace openreg::ops {

/// Whether `kernel` is known to take the arguments of this signature, or takes them now, tried on
/// zeros by the calling thread. See Note [Trial] in trial.cpp. Thread safe.
bool takes_arguments(const Kernel& kernel, ArgumentWriter& arguments);

/// Calls `attempt` with the finished command on tensors of zeros (CommandOnHost), and returns what
/// it does; false where it throws, also with ones as the integers. The warnings of an attempt that
/// passes are told, and the command will not repeat them.
bool passes_on_zeros(ArgumentWriter& arguments, bool shrunk,
                     c10::function_ref<bool(std::span<const std::byte>)> attempt);

}  // namespace openreg::ops
