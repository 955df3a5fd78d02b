#pragma once

#include <span>

#include "ops/launch/call_plan.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a call of `kernel` with these arguments asks of its runner. `results`: those that are not
/// among the arguments yet. See Note [Work] in work.cpp.
Work work_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results = {});

/// Of kernels that do little with each byte.
inline constexpr float kNanosecondsPerByte = 0.25F;

/// The same of a kernel that reads and writes so many bytes.
Work work_of_bytes(double bytes, double nanoseconds_per_byte = kNanosecondsPerByte);

}  // namespace openreg::ops
