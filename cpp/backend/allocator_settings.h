#pragma once

namespace openreg::backend {

/// Applies PYTORCH_ALLOC_CONF to the devices' heaps, and from then on also settings made at run
/// time (torch._C._accelerator_setAllocatorSettings). Later calls do nothing. Warns once about keys
/// that PyTorch's parser accepts but that have no effect here. Throws c10::Error if the variable is
/// malformed; the next call then tries again. Thread safe.
void follow_allocator_settings();

}  // namespace openreg::backend
