#pragma once

#include <c10/util/Exception.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "ops/launch/op_kernel.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// The result of a probe. See Note [Probes] in probe.cpp.
struct Findings {
  bool passes = false;
  /// The kernel's error for arguments that it refuses whatever their elements are; null if there is
  /// none.
  std::exception_ptr refusal{};
  /// The kernel has warned and the call has reported it, so the command must not.
  bool warned = false;
  /// The warnings that it gives every time.
  std::vector<c10::Warning> warnings{};
};

/// Calls `attempt` with the finished command on stand-ins (StandIn), first on zeros, then with ones
/// as the integers. `attempt` returns whether the kernel takes them, or throws if it does not; it
/// may be called several times. The warnings of an attempt that passes are reported.
Findings probe(ArgumentWriter& arguments, bool shrunk,
               c10::function_ref<bool(std::span<const std::byte>)> attempt);

/// Finds out whether `kernel` takes the arguments; throws its error if it never does. The answer is
/// remembered for calls that are alike by `detail`; otherwise the kernel is run on stand-ins: small
/// ones, and if it does not take such shapes, in full size.
Findings probe_kernel(const OpKernel& kernel, ArgumentWriter& arguments, Detail detail);

}  // namespace openreg::ops
