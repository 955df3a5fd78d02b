#pragma once

#include "backend/submit.h"
#include "ops/launch/op_kernel.h"
#include "ops/launch/plan_cache.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

using backend::LaunchCounter;

/// Enqueues `kernel` with the arguments written, as the plan says, on the current stream of the
/// writer's device. Decides nothing. Throws what backend::submit() throws.
void submit(const OpKernel& kernel, ArgumentWriter& arguments, const CallPlan& plan,
            LaunchCounter counted_as = LaunchCounter::kTyped);

/// For operators that check their arguments and make their results themselves: plans what remains,
/// whether the kernel takes such arguments at all (probe.h), and submits. With Takes::kAll the
/// kernel takes all that the operator lets through.
enum class Takes : bool { kMaybe, kAll };
void launch(const OpKernel& kernel, ArgumentWriter& arguments, Takes takes = Takes::kMaybe);

/// Throws c10::AcceleratorError if the current stream of `device` is captured: for what cannot be a
/// part of a graph. `op` names the operator.
void expect_not_captured(c10::Device device, const char* op);

/// Waits until the current stream of `device` is idle, working meanwhile: for operators whose
/// result the host needs. Counted, and reported as set_sync_debug_mode() says (sync_debug.h).
/// Throws what failed on the stream before, and c10::AcceleratorError if it is captured; `op` names
/// the operator.
void wait_for_device(c10::Device device, const char* op);

/// The same within an operator that has waited already, for what it has queued itself since.
void wait_for_device_again(c10::Device device);

}  // namespace openreg::ops
