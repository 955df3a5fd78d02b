#pragma once

#include <span>

#include "ops/launch/call_plan.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// The work of a call of `kernel` with these arguments. `results`: those that are not among the
/// arguments yet. See Note [Work] in work.cpp.
Work work_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results = {});

/// The work of a call that reads or writes this many bytes, and does little with each.
Work work_of_bytes(double bytes);

}  // namespace openreg::ops
