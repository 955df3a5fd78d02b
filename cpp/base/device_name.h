#pragma once

#include <string>

#include "slot_name.h"

namespace openreg {

/// A device, as messages name it: "openreg:0", or by the name of the slot that this is built for.
inline std::string device_name(int device) {
  return std::string(kDeviceName) + ':' + std::to_string(device);
}

}  // namespace openreg
