#pragma once

namespace openreg::backend {

/// Registers the device with torch.profiler. Called once, when the library is loaded.
void register_profiler();
/// The same for torch.autograd.profiler without Kineto, which times operators by events.
void register_event_profiler();

}  // namespace openreg::backend
