#pragma once

#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <span>

#include "backend/launch_statistics.h"
#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg::backend {

/// How a command goes to its stream.
struct Submission {
  LaunchCounter counted_as = LaunchCounter::kTyped;
  /// The call waits for its command, and throws what that throws. All do with
  /// TORCH_OPENREG_LAUNCH_BLOCKING=1.
  bool waits = false;
  Work work{};
};

using MemoryOfCommand = c10::SmallVector<const void*, 6>;

/// The one way to a stream's queue for all that computes or copies. `memory` names the device
/// memory that the command uses; it is asked for only while memory is being debugged. Throws
/// c10::Error after shutdown and in a forked child.
void submit(openreg::Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
            c10::function_ref<MemoryOfCommand()> memory, const Submission& how);

}  // namespace openreg::backend
