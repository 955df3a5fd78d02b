#pragma once

#include <span>

#include "ops/launch/call_plan.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// The expected cost of a call of `kernel` with these arguments. `results`: those that are not
/// among the arguments yet. See Note [Costs] in cost.cpp.
Cost cost_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results = {});

/// The expected cost of a call that reads or writes this many bytes, and does little with each.
Cost cost_of_bytes(double bytes);

}  // namespace openreg::ops
