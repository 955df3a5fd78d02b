#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "ops/wire/argument_reader.h"

namespace openreg::ops {

// If the implementation of a structured operator is a loop over an iterator, the iterator is built
// once and serves each call with the same tensors, which takes a sixth of the time of building it
// again.

/// Whether an iterator can serve again: it computes on the tensors of the command themselves, and
/// not on copies in another dtype, which would keep the current elements. The iterator makes such
/// copies, and so do some meta functions (of pow). A number is the same in each run, and so is its
/// copy. `arguments`: those of the command.
bool computes_in_place(const at::TensorIteratorBase& iterator, const ArgumentReader& arguments);

/// The part of an iterator that an implementation may change, as some do.
using IteratorState = c10::SmallVector<std::int64_t, 24>;
IteratorState state_of(const at::TensorIteratorBase& iterator);

}  // namespace openreg::ops
