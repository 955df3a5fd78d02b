#pragma once

#include <array>
#include <cstddef>

#include "backend/device.h"
#include "base/settings.h"

namespace openreg {
class Stream;
}

namespace openreg::backend {

/// The index of an existing device in an array of kMaxDevices.
inline std::size_t device_slot(c10::DeviceIndex device) noexcept {
  return static_cast<unsigned char>(device);
}

/// The calling thread's current device and streams (device.h, stream.h).
struct ThreadCurrent {
  c10::DeviceIndex device = 0;
  std::array<openreg::Stream*, kMaxDevices>
      streams{};             ///< null: the default one, not looked up yet
  bool has_streams = false;  ///< a stream was set: most threads set none
};

ThreadCurrent& thread_current() noexcept;

}  // namespace openreg::backend
