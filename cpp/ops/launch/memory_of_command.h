#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/submit.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a command of the operator `op` uses, in the order of its tensors. `arguments` wrote it.
backend::MemoryOfCommand memory_of_command(const char* op, std::span<const std::byte> command,
                                           const ArgumentWriter& arguments);

/// The name of the argument of `op` that a tensor is: "`self`", "`tensors[2]`", "the result"; empty
/// if it is unknown.
std::string argument_name(const char* op, const memory::MemoryUse& use);

}  // namespace openreg::ops
