#pragma once

namespace at {
struct PrivateUse1HooksInterface;
}

namespace openreg::backend {

/// What PyTorch asks of a device outside of streams and memory: is it there, its generators, whose
/// pointer is this. A singleton that is leaked on purpose: PyTorch keeps the pointer for good.
at::PrivateUse1HooksInterface& accelerator_hooks();

}  // namespace openreg::backend
