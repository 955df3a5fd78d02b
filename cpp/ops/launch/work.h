#pragma once

#include <span>

#include "ops/launch/call_plan.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What one thread is expected to take for a call of `kernel` with these arguments, in
/// microseconds; 0 where that is too little to share it (kLeastWork). `results`: those that are not
/// among the arguments yet. See Note [Work] in work.cpp.
Work work_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results = {});

/// What is worth a team: ten times its start.
inline constexpr Work kLeastWork = 1000;

}  // namespace openreg::ops
