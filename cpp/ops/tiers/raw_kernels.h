#pragma once

#include "ops/launch/op_kernel.h"

namespace openreg::ops {

/// The raw kernel of an operator that is computed on the command's memory, without tensors: of
/// `cat`, whose lists of small tensors take longer to make than to copy, and of `sum` (raw_sum.h).
/// Null for all other operators.
BodyTraits::RawKernel raw_kernel(const char* op);

}  // namespace openreg::ops
