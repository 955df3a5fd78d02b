#pragma once

namespace at {
struct PrivateUse1HooksInterface;
}

namespace openreg::backend {

/// PyTorch's interface to a device apart from streams and memory: whether it is present, its
/// generators, and which device a pointer belongs to. A singleton that is leaked on purpose:
/// PyTorch keeps the pointer for ever.
at::PrivateUse1HooksInterface& accelerator_hooks();

}  // namespace openreg::backend
