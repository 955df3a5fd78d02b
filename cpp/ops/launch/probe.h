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
struct ProbeResult {
  bool passes = false;
  /// The kernel's error for arguments that it refuses whatever their elements are; null if there is
  /// none.
  std::exception_ptr refusal{};
  /// The kernel has warned and the call has reported it, so the command must not.
  bool warned = false;
  /// The warnings that it emits every time, which every call must report.
  std::vector<c10::Warning> warnings{};
};

/// Without computing, calls on more memory are not tried in full size.
inline constexpr std::size_t kMostTried = std::size_t{16} << 20;

/// Calls `attempt` with the finished command on stand-ins (StandIn), first with zeros and, if it
/// does not pass, with ones as the integers. `attempt` returns whether the kernel takes them, or
/// throws if it does not. After an attempt that warns and passes, it is called once more: warnings
/// that do not recur are reported, the others are returned. If the stand-ins would take too much
/// memory, waits for the device first, and throws as wait_for_device() does.
ProbeResult probe(ArgumentWriter& arguments, bool shrunk,
                  c10::function_ref<bool(std::span<const std::byte>)> attempt);

/// Finds out whether `kernel` takes the arguments, by running it on stand-ins: small ones, if
/// `shrunk`, and if it does not take such shapes, in full size. Throws the kernel's
/// c10::NotImplementedError, and as probe() does. A positive answer is remembered for calls that
/// are alike by `level`.
ProbeResult probe_kernel(const OpKernel& kernel, ArgumentWriter& arguments, SignatureLevel level,
                         bool shrunk = true);

}  // namespace openreg::ops
