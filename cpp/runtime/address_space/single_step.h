#pragma once

namespace openreg {

/// Makes SIGTRAP stop threads that begin_single_step(); in front of any handler that was installed
/// in the meantime. `after` is called by the signal handler. Thread safe.
void prepare_single_steps(void (*after)(const void* address) noexcept);

/// Called by a signal handler with its context: when the handler has returned and one instruction
/// has been executed, `after` is called with `address`, and with those of further faults of the
/// same instruction. False: that is not possible here.
bool begin_single_step(void* context, const void* address) noexcept;

}  // namespace openreg
