#pragma once

#include <c10/core/Device.h>

#include "slot.h"

namespace openreg::backend {

/// The calling thread's current device, 0 until it is set.
c10::DeviceIndex current_device() noexcept;
/// Throws c10::Error ("openreg: The device index is out of range (got 5, expected 0 to 1) ...") for
/// a device that does not exist, and if the settings are malformed.
void set_device(c10::DeviceIndex index);
/// Like set_device(), without the checks, for guards that restore the device.
void set_device_unchecked(c10::DeviceIndex index) noexcept;
/// `index`, checked as by set_device(); for -1 the current device, unchecked.
c10::DeviceIndex resolve_device(c10::DeviceIndex index);

}  // namespace openreg::backend
