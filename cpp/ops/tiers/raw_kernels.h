#pragma once

#include "ops/launch/op_kernel.h"

namespace openreg::ops {

/// The operators that are computed on the command's memory, without tensors: `cat`, whose lists of
/// small tensors take longer to make than to copy, and `sum` (raw_sum.h). Null for all others.
BodyTraits::RawKernel raw_kernel(const char* op);

}  // namespace openreg::ops
