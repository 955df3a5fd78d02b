#pragma once

#include "runtime/stream.h"

namespace openreg::ops {

/// What happens before an implicit synchronization by an operator, as in torch.cuda:
/// nothing, a warning, or a c10::Error. Process-wide. Thread safe.
enum class SyncDebugMode : int { kDefault, kWarn, kError };

void set_sync_debug_mode(SyncDebugMode mode) noexcept;
SyncDebugMode sync_debug_mode() noexcept;

/// Called before such a wait for a stream: counts it and reports it to PyTorch's GPU tracing.
/// Throws c10::Error with kError.
void announce_host_wait(const openreg::Stream& stream);

}  // namespace openreg::ops
