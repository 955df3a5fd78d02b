#include "backend/device.h"

#include <c10/util/Exception.h>

#include "backend/exception.h"
#include "backend/thread_current.h"
#include "base/settings.h"

namespace openreg::backend {

namespace {

void check_device(c10::DeviceIndex index) {
  const int devices = translate_errors([]() -> const Settings& { return settings(); }).devices;
  TORCH_CHECK(index >= 0 && index < devices, "openreg: The device index is out of range (got ",
              static_cast<int>(index), ", expected 0 to ", devices - 1,
              "); TORCH_OPENREG_DEVICES sets how many devices there are");
}

}  // namespace

ThreadCurrent& thread_current() noexcept {
  thread_local ThreadCurrent current;
  return current;
}

c10::DeviceIndex current_device() noexcept { return thread_current().device; }

void set_device(c10::DeviceIndex index) {
  check_device(index);
  thread_current().device = index;
}

void set_device_unchecked(c10::DeviceIndex index) noexcept { thread_current().device = index; }

c10::DeviceIndex resolve_device(c10::DeviceIndex index) {
  if (index == -1) return current_device();
  check_device(index);
  return index;
}

}  // namespace openreg::backend
