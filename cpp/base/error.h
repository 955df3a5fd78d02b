#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "base/launch_site.h"

namespace openreg {

/// The base class of the runtime's errors. The message starts with "openreg: ", or with the
/// device that it is about ("openreg:0 ..."), and says what the user can do. The layers above
/// convert it to their own exception types in one place (backend/exception.h).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An injected fault (runtime/fault_table.h), where a command or a call fails as a real one would.
class InjectedError : public Error {
 public:
  using Error::Error;
};

/// The message of any exception: what(), if it has one.
std::string describe(const std::exception_ptr& error);
/// Like describe(), but without a leading "openreg: ", for a sentence that begins so already.
std::string describe_cause(const std::exception_ptr& error);

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
