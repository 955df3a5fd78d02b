#pragma once

#include <cstdint>
#include <exception>

#include "base/error.h"
#include "base/launch_site.h"

namespace openreg {

/// A command failed on the device. Thrown by the first call that synchronises with the stream or
/// its device, or queries the stream. Events pass the failure to other streams, and each throws it
/// once.
class CommandError : public Error {
 public:
  /// `kernel` is the failed kernel's name, `site` the line that launched it; `cause` is what it
  /// threw.
  CommandError(const char* kernel, LaunchSite site, int device, std::int64_t stream,
               std::exception_ptr cause);

  const char* kernel() const noexcept { return kernel_; }
  int device() const noexcept { return device_; }
  std::int64_t stream() const noexcept { return stream_; }
  std::exception_ptr cause() const noexcept { return cause_; }

 private:
  const char* kernel_;
  int device_;
  std::int64_t stream_;
  std::exception_ptr cause_;
};

}  // namespace openreg
