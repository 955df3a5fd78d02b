#pragma once

#include "ops/launch/op_kernel.h"

namespace openreg::ops {

/// The operator sum for contiguous tensors of bool or integers of 8 or 16 bits, over adjacent
/// dimensions, into int64. ATen converts each element before it adds it, which takes three times as
/// long as a sum of float32. False: not with these arguments; nothing has been written.
bool sum_of_small_integers(const OpKernel&, const CommandView& command);

/// The raw kernel of an operator that is computed on the command's memory, without tensors: of
/// `cat`, whose lists of small tensors take longer to make than to copy, and of `sum`.
/// Null for all other operators.
BodyTraits::RawKernel raw_kernel(const char* op);

}  // namespace openreg::ops
