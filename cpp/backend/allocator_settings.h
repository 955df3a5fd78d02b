#pragma once

namespace openreg::backend {

/// Makes the devices' heaps follow PYTORCH_ALLOC_CONF, and what is set at run time
/// (torch._C._accelerator_setAllocatorSettings). Warns once of keys that mean something to
/// PyTorch's parser but nothing here. Throws c10::Error if the variable is malformed.
void follow_allocator_settings();

}  // namespace openreg::backend
