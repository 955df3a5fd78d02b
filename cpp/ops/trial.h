#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/command.h"

namespace openreg::ops {

/// Whether `kernel` is known to take arguments of this signature, or takes them now, tried on zeros
/// by the calling thread. See Note [Trial] in trial.cpp. Thread safe.
bool takes_arguments(const Kernel& kernel, std::uint64_t signature,
                     std::span<const std::byte> command);

}  // namespace openreg::ops
