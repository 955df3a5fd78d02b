#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>

// PyTorch's slot for the device, which is named only here.

namespace openreg::backend {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kDispatchKey = c10::DispatchKey::PrivateUse1;
inline constexpr c10::BackendComponent kBackendBit = c10::BackendComponent::PrivateUse1Bit;

/// Whether a device is an openreg device, or a tensor lies on one.
template <class T>
bool is_openreg(const T& device_or_tensor) {
  return device_or_tensor.is_privateuseone();
}

}  // namespace openreg::backend
