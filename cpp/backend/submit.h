#pragma once

#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <span>

#include "backend/launch_counters.h"
#include "memory/memory_use.h"
#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg::backend {

/// How a command is submitted to its stream.
struct Submission {
  Counter& counted_as = counters::typed;
  /// The call waits for its command, and throws what that throws. With
  /// TORCH_OPENREG_LAUNCH_BLOCKING=1 every call waits, except on a captured stream.
  bool waits = false;
  Cost cost{};
};

using MemoryOfCommand = c10::SmallVector<memory::MemoryUse, 4>;

/// The only way into a stream's queue for everything that computes or copies. `memory` returns what
/// the command uses; it is called only if there are checks (memory::checks). Throws c10::Error
/// after shutdown, in a forked child, and if the debugger finds that the memory has been freed;
/// c10::AcceleratorError if the call would wait on a captured stream, or the device has failed or
/// is lost; and throw_race_error()'s exception if an access of the command is not ordered after an
/// earlier one.
void submit(openreg::Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
            c10::function_ref<MemoryOfCommand()> memory, const Submission& how);

}  // namespace openreg::backend
