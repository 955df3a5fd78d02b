#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops {

// If the implementation of a structured operator is a loop over an iterator, the iterator is built
// once and serves each command that is alike (launch/command_cache.h), which takes a sixth of the
// time of building it again.

/// Whether an iterator can serve again: it computes on the tensors of the command themselves, and
/// not on copies in another dtype, which would keep the current elements. The iterator makes such
/// copies, and so do some meta functions (of pow). A number is the same in each run, and so is its
/// copy. `arguments`: those of the command.
bool computes_in_place(const at::TensorIteratorBase& iterator, const ArgumentReader& arguments);

/// In which storage of a command each operand of its iterator lies; -1: in none, as the copy of a
/// number.
using OperandStorages = c10::SmallVector<std::int32_t, 6>;
/// The storages of the operands; none if they cannot be told.
std::optional<OperandStorages> storages_of_operands(const at::TensorIteratorBase& iterator,
                                                    std::span<const std::byte> command);
/// Moves the operands in one storage by a number of bytes.
void move_operands(at::TensorIteratorBase& iterator, const OperandStorages& storages,
                   std::uint32_t storage, std::ptrdiff_t by);

/// The part of an iterator that an implementation may change, as some do.
using IteratorState = c10::SmallVector<std::int64_t, 24>;
IteratorState state_of(const at::TensorIteratorBase& iterator);

}  // namespace openreg::ops
