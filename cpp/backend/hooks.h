#pragma once

namespace openreg::backend {

class SlotHooks;

/// PyTorch's interface to a device for what has no interface of its own: whether it is present, its
/// generators, pinned memory, storages that are resized, and the device of a pointer. A singleton
/// that is leaked deliberately: PyTorch keeps the pointer until the process ends.
SlotHooks& accelerator_hooks();

}  // namespace openreg::backend
