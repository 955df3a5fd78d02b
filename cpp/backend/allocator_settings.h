#pragma once

namespace openreg::backend {

/// Applies PYTORCH_ALLOC_CONF, and settings made at run time
/// (torch._C._accelerator_setAllocatorSettings), to the devices' heaps. Warns once about keys that
/// PyTorch's parser accepts but that have no effect here. Throws c10::Error if the variable is
/// malformed.
void follow_allocator_settings();

}  // namespace openreg::backend
