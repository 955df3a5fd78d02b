#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace openreg::backend {

/// The interface through which PyTorch's device, stream and event code reaches openreg:
/// c10::DeviceGuard, torch.Stream, torch.Event, torch.accelerator, the autograd engine. A singleton
/// that is leaked deliberately: guards run in destructors.
const c10::impl::DeviceGuardImplInterface& device_guard();

}  // namespace openreg::backend
