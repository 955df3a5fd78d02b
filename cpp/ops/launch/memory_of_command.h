#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/submit.h"
#include "memory/race_detector.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a command of the operator `op` uses, in the order of its tensors. `arguments` wrote it.
backend::MemoryOfCommand memory_of_command(const char* op, std::span<const std::byte> command,
                                           const ArgumentWriter& arguments);

/// The operator and its argument, by the schema: {"aten::add_.Tensor", "`self`"}.
memory::AccessName name_access(const char* op, const memory::MemoryUse& use);

}  // namespace openreg::ops
