#pragma once

#include <cstddef>
#include <span>

#include "backend/submit.h"
#include "ops/launch/op_kernel.h"
#include "ops/launch/plan_cache.h"
#include "ops/launch/zero_arguments.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// Launches `kernel` with the arguments written, according to the plan, on the current stream of
/// the writer's device. Makes no decisions. Throws as backend::submit(), ArgumentWriter::finish()
/// and, if the plan waits, announce_host_wait() do.
void launch(const OpKernel& kernel, ArgumentWriter& arguments, const CallPlan& plan,
            Counter& counted_as = backend::counters::typed);

/// For operators that check their arguments and make their results themselves: plans what remains,
/// namely whether the kernel accepts such arguments at all (probe.h), and launches. With
/// ArgumentSupport::kAll the kernel accepts all that the operator accepts.
enum class ArgumentSupport : bool { kProbed, kAll };
void launch(const OpKernel& kernel, ArgumentWriter& arguments,
            ArgumentSupport support = ArgumentSupport::kProbed);

/// Called if there are checks (memory::checks), before a command is submitted to `stream`; what it
/// throws, launch() throws.
using LaunchHook = void (*)(const OpKernel& kernel, std::span<const std::byte> command,
                            const ArgumentWriter& arguments, ValueFormat format,
                            openreg::Stream& stream);
/// There is one hook, which is set when the library is loaded.
void set_launch_hook(LaunchHook hook) noexcept;

/// For work that cannot be part of a graph, and that waits for the device, at least with other
/// arguments: throws c10::AcceleratorError, and invalidates the capture, if the current stream of
/// `device` is captured, or another capture forbids this thread to wait. `op` names the operator.
void expect_may_wait(c10::Device device, const char* op);

/// Waits, and helps to run commands, until the current stream of `device` is idle: for operators
/// whose result the host needs. The wait is counted, and reported according to
/// set_sync_debug_mode(). Throws an earlier failure of the stream, what announce_host_wait()
/// (sync_debug.h) throws, and as expect_may_wait() does; `op` names the operator.
void wait_for_device(c10::Device device, const char* op);

/// Like wait_for_device(), within an operator that has already waited, for work that it has
/// launched itself since then: not counted or reported again.
void wait_for_device_again(c10::Device device);

}  // namespace openreg::ops
