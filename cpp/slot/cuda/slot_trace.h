#pragma once

#include <c10/core/impl/GPUTrace.h>

namespace openreg::backend {

/// Calls `tell` with PyTorch's tracing of GPUs (torch.cuda._gpu_trace), if that is on: it is how
/// CUDA's sanitizer learns of streams, events and memory. Takes the GIL: must not be called under a
/// lock.
template <class Tell>
void trace_call(Tell&& tell) {
  const auto* const tracer = c10::impl::GPUTrace::get_trace();
  if (tracer != nullptr) [[unlikely]]
    tell(*tracer->vtable_);
}

}  // namespace openreg::backend
