#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>

#include "driver/stream.h"

// What all files need: the names of the device type, and what is current on this thread.
namespace torch_acme {

// PyTorch has one device type for backends that are not part of it. It gets its name in Python, by
// torch.utils.rename_privateuse1_backend.
constexpr auto kAcme = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

/// The current device and streams belong to the thread. An index of -1 means the current device;
/// one without a device is an error.
c10::DeviceIndex current_device() noexcept;
c10::DeviceIndex checked(c10::DeviceIndex index);
void set_device(c10::DeviceIndex index);
void set_device_unchecked(c10::DeviceIndex index) noexcept;

driver::Stream& current_stream(c10::DeviceIndex index);
/// Returns the stream that was current on the device of `stream`. Does not switch devices.
driver::Stream& exchange_stream(driver::Stream& stream);

c10::Stream to_torch(const driver::Stream& stream);
driver::Stream& to_driver(const c10::Stream& stream);

}  // namespace torch_acme
