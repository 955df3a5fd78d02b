#pragma once

#include "ops/launch/op_kernel.h"

namespace openreg::ops {

/// The operators that are computed on the command's memory, without tensors, where these would take
/// most of the time: lists of thousands of small ones. Null for all others.
BodyTraits::Direct direct_computation(const char* op);

}  // namespace openreg::ops
