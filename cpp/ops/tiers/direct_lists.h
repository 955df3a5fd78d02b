#pragma once

#include "ops/launch/op_kernel.h"

namespace openreg::ops {

/// The operators that add to, subtract from, multiply or divide the tensors of a list in place, by
/// a number, a tensor with one element, or the tensors of another list, if the tensors are small:
/// ATen takes longer to begin with each than to compute it. An optimizer counts its steps by such
/// an operator. Null for all others.
BodyTraits::Direct direct_computation_of_lists(const char* op);

}  // namespace openreg::ops
