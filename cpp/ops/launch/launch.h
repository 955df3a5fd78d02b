#pragma once

#include "ops/launch/statistics.h"
#include "ops/wire/arguments.h"
#include "runtime/command.h"

namespace openreg::ops {

/// Whether a kernel is known to take the dtypes it is launched with, or a trial is to tell
/// (trial.h).
enum class Arguments : bool { kUnknown, kKnown };

/// The one way to submit work: enqueues `kernel` with the arguments written, on the current stream
/// of the writer's device. With TORCH_OPENREG_LAUNCH_BLOCKING=1 it waits and raises what the kernel
/// raised. Throws c10::Error after shutdown and in a forked child.
void launch(const Kernel& kernel, ArgumentWriter& arguments, Tier tier = Tier::kStructured,
            Arguments known = Arguments::kUnknown);

/// Waits until the current stream of `device` is idle, working meanwhile: for operators whose
/// result the host needs. Counted, and announced to whoever looks for such waits (sync_debug.h).
/// Throws what failed on the stream before.
void wait_for_device(c10::Device device);

/// The same within an operator that has waited already, for what it has queued itself since.
void wait_for_device_again(c10::Device device);

}  // namespace openreg::ops
