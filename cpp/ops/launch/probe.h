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

/// What probing has shown. See Note [Probes] in probe.cpp.
struct Findings {
  bool passes = false;
  /// What the kernel says to arguments that it takes with no elements whatever; null: nothing.
  std::exception_ptr refusal{};
  /// The kernel has warned, and the call has reported it: the command must not.
  bool warned = false;
  /// What it warns of every time.
  std::vector<c10::Warning> warnings{};
};

/// Calls `attempt` with the finished command on stand-ins (StandIn), first on zeros, then with ones
/// as the integers. `attempt` returns whether the kernel takes them, or throws if it does not; it
/// may be called several times. The warnings of an attempt that passes are reported.
Findings probe(ArgumentWriter& arguments, bool shrunk,
               c10::function_ref<bool(std::span<const std::byte>)> attempt);

/// Whether `kernel` takes the arguments, or throws what it says if it never does: remembered of
/// calls that are alike by `detail`, else it is run on stand-ins, small ones, and where it does not
/// take such shapes, in full size.
Findings probe_kernel(const OpKernel& kernel, ArgumentWriter& arguments, Detail detail);

}  // namespace openreg::ops
