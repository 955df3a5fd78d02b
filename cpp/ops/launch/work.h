#pragma once

#include "ops/wire/argument_writer.h"
#include "runtime/command.h"

namespace openreg::ops {

/// What one thread is expected to take for a call of `kernel` with these arguments, outputs
/// included, in microseconds; 0 where that is little. From the shapes alone: see Note [Work].
Work work_of(const char* kernel, const ArgumentWriter& arguments);

}  // namespace openreg::ops
