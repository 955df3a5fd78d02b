#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/command.h"

namespace openreg::ops {

/// Whether `kernel` is known to take arguments of this signature, or takes them now, tried on zeros
/// by the calling thread. See Note [Trial] in trial.cpp. Thread safe.
bool takes_arguments(const Kernel& kernel, std::uint64_t signature,
                     std::span<const std::byte> command);

/// Calls `attempt` with the command on tensors of zeros (arguments.h), with no warnings, and
/// returns what it does; false where it throws. Where it divides integers by them, once more on
/// positive numbers.
bool passes_on_zeros(std::span<const std::byte> command, bool shrunk,
                     c10::function_ref<bool(std::span<const std::byte>)> attempt);

}  // namespace openreg::ops
