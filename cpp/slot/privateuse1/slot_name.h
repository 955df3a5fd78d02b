#pragma once

// How messages name the device. Without torch, for base/device_name.h.

namespace openreg {

/// The type of the device, as in torch.device("openreg").
inline constexpr const char* kDeviceName = "openreg";

/// The device in prose.
inline constexpr const char* kDeviceInProse = "openreg";

/// The device's graphs in prose.
inline constexpr const char* kGraphsInProse = "graphs";

/// The device's module in Python.
inline constexpr const char* kModule = "torch.openreg";

/// The module of what only this device has, as in torch.openreg.assume.
inline constexpr const char* kOwnModule = "torch.openreg";

}  // namespace openreg
