#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace openreg {

/// Whether a device accepts work.
enum class Health : std::uint8_t {
  kHealthy,
  kStopped,  ///< the device's executor has ended: it runs no kernels, but its memory can be read
  kFailed,   ///< a command failed, with TORCH_OPENREG_STICKY_ERRORS=1
  kLost,     ///< the device is lost, by an injected fault
};

/// Thrown by each call that needs a device which has failed or is lost.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& message, Health health) : Error(message), health_(health) {}
  Health health() const noexcept { return health_; }

 private:
  Health health_;
};

}  // namespace openreg
