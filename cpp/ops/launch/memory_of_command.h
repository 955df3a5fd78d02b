#pragma once

#include <cstddef>
#include <span>

#include "backend/submit.h"
#include "memory/command_check.h"
#include "memory/race_detector.h"
#include "ops/launch/zero_arguments.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// What a command of the operator `op` uses, in the order of its tensors. `arguments` wrote it.
backend::MemoryOfCommand memory_of_command(const char* op, std::span<const std::byte> command,
                                           const ArgumentWriter& arguments, ValueFormat format);

/// To be called when the calling thread, which has waited for the current stream, is about to
/// access this argument of the operator `op` itself. Throws as backend::submit() does.
void check_host_access(const char* op, const at::TensorBase& tensor, bool writes,
                       const ArgumentPlace& place, const ZeroArguments& zeros);
inline void note_host_access(const char* op, const at::TensorBase& tensor, bool writes,
                             const ArgumentPlace& place, const ZeroArguments& zeros = {}) {
  if (memory::checks::any_beside(memory::checks::kFaults))
    check_host_access(op, tensor, writes, place, zeros);
}

/// The operator and its argument, by the schema: {"aten::add_.Tensor", "`self`"}.
memory::AccessName name_access(const char* op, const memory::MemoryUse& use);

}  // namespace openreg::ops
