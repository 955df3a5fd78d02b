#include "backend/exception.h"

#include <c10/util/Exception.h>

#include <string>

#include "backend/race_detection.h"
#include "base/error.h"
#include "runtime/capture.h"
#include "runtime/command_error.h"
#include "runtime/device_health.h"

namespace openreg::backend {

namespace {

// AcceleratorError carries a driver's error number. For a failed command:
constexpr std::int32_t kCommandFailed = 1;
// For a device that has failed for good, and for one that is lost; CUDA's numbers for a device-side
// assertion and for an unavailable device.
constexpr std::int32_t kDeviceFailed = 710;
constexpr std::int32_t kDeviceUnavailable = 46;
// For a call that a capture does not permit; CUDA's number.
constexpr std::int32_t kStreamCaptureUnsupported = 900;

c10::SourceLocation here() { return {"rethrow_as_torch_error", __FILE__, __LINE__}; }

}  // namespace

// c10::Error::what() ends with a C++ backtrace, which does not belong in a message and takes
// milliseconds to make.
std::string message_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

void rethrow_as_torch_error() {
  try {
    throw;
  } catch (const memory::RaceError& e) {
    throw_race_error(e);
  } catch (const CommandError& e) {
    const auto health = health_of(e.device());
    const bool lost = health == Health::kStopped || health == Health::kLost;
    throw c10::AcceleratorError(here(), lost ? kDeviceUnavailable : kCommandFailed, e.what());
  } catch (const InjectedError& e) {
    throw c10::AcceleratorError(here(), kCommandFailed, e.what());
  } catch (const DeviceError& e) {
    const bool lost = e.health() == Health::kLost;
    throw c10::AcceleratorError(here(), lost ? kDeviceUnavailable : kDeviceFailed, e.what());
  } catch (const CaptureError& e) {
    throw c10::AcceleratorError(here(), kStreamCaptureUnsupported, e.what());
  } catch (const Error& e) {
    throw c10::Error(here(), e.what());
  }
}

}  // namespace openreg::backend
