#pragma once

namespace openreg::backend {

/// What PyTorch's tracing of GPUs is told of the device: nothing, in this slot.
template <class Tell>
void trace_call(Tell&&) {}

}  // namespace openreg::backend
