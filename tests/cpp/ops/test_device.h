#pragma once

#include <c10/core/Device.h>

#include "backend/device_type.h"

namespace openreg::ops {

/// The device that the tests of operators use.
inline const c10::Device kDevice(backend::kDeviceType, 0);

}  // namespace openreg::ops
