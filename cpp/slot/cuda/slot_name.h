#pragma once

// How messages name the device. Without torch, for base/device_name.h.

namespace openreg {

/// The type of the device, as in torch.device("cuda").
inline constexpr const char* kDeviceName = "cuda";

/// The device in prose. Programs look for the words of CUDA's messages.
inline constexpr const char* kDeviceInProse = "CUDA";

/// The device's graphs in prose.
inline constexpr const char* kGraphsInProse = "CUDA graphs";

/// The device's module in Python.
inline constexpr const char* kModule = "torch.cuda";

/// The module of what only this device has, as in openreg_cuda.assume.
inline constexpr const char* kOwnModule = "openreg_cuda";

}  // namespace openreg
