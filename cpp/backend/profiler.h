#pragma once

namespace openreg::backend {

/// Registers the device with torch.profiler. Called once, when the library is loaded.
void register_profiler();
/// Registers the device with torch.autograd.profiler without Kineto, which times operators by
/// events. Called once, when the library is loaded.
void register_event_profiler();

}  // namespace openreg::backend
