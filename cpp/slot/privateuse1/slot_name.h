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

}  // namespace openreg
