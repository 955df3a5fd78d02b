#pragma once

#include <array>
#include <cstddef>

#include "backend/device.h"
#include "runtime/settings.h"

namespace openreg {
class Stream;
}

namespace openreg::backend {

/// Where what belongs to an existing device lies in an array of kMaxDevices.
inline std::size_t device_slot(c10::DeviceIndex device) noexcept {
  return static_cast<unsigned char>(device);
}

/// What device.h and stream.h call current, of the calling thread.
struct ThreadCurrent {
  c10::DeviceIndex device = 0;
  std::array<openreg::Stream*, kMaxDevices>
      streams{};             ///< null: not asked for yet, the default one
  bool has_streams = false;  ///< a stream was set: most threads set none
};

ThreadCurrent& thread_current() noexcept;

}  // namespace openreg::backend
