#include "runtime/command_error.h"

#include <string>
#include <utility>

#include "base/device_name.h"

namespace openreg {

namespace {

std::string message(const char* kernel, LaunchSite site, int device, std::int64_t stream,
                    const std::string& cause) {
  const std::string end = cause.ends_with('.') ? " " : ". ";
  const std::string advice =
      site != 0 ? "" : "TORCH_OPENREG_STACKS=1 to report the line of the call, or ";
  return "openreg: " + std::string(kernel) + " failed on " + device_name(device) + ", stream " +
         std::to_string(stream) + launched_by(site) + ": " + cause + end +
         "Later work on that stream was skipped; set " + advice +
         "TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call";
}

}  // namespace

CommandError::CommandError(const char* kernel, LaunchSite site, int device, std::int64_t stream,
                           std::exception_ptr cause)
    : Error(message(kernel, site, device, stream, describe_cause(cause))),
      kernel_(kernel),
      device_(device),
      stream_(stream),
      cause_(std::move(cause)) {}

}  // namespace openreg
