#pragma once

#include <span>

#include "ops/launch/call_plan.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a call of `kernel` with these arguments asks of its runner; 0 microseconds where that is
/// too little to share it (kLeastWork). `results`: those that are not among the arguments yet. See
/// Note [Work] in work.cpp.
Work work_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results = {});

/// The same of one that passes so many bytes, and does little with each.
Work work_of_bytes(double bytes);

/// What is worth a team: ten times its start.
inline constexpr int kLeastWork = 1000;  // microseconds

}  // namespace openreg::ops
