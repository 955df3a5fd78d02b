#pragma once

#include <ATen/core/alias_info.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a schema says of an argument: it is a tensor or has some in it; the operator changes it, or
/// what is in it.
bool holds_tensors(const c10::Type& type);
bool is_written(const c10::AliasInfo* alias);

/// Whether arguments of this type of an operator's schema can travel in a command. Generators,
/// streams, storages, dictionaries and the like cannot.
bool travels(const c10::Type& type);

/// What is known of an operator's floating-point numbers and Scalars: they may decide how a call
/// ends, or they only scale, and their kind decides (number.h).
enum class Numbers : bool { kDecide, kScale };

/// Writes one argument. Tensors of the list type that indexing takes may be on the CPU: they are
/// copied to the device first. False: this value cannot travel (a symbolic integer).
bool write_ivalue(ArgumentWriter& writer, const c10::IValue& value, const c10::Type& type,
                  Access access, Numbers numbers);

/// Reads it back; a device has become the CPU.
c10::IValue read_ivalue(ArgumentReader& reader);

}  // namespace openreg::ops
