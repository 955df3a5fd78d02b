#pragma once

#include "base/schedule.h"

namespace openreg {

/// The schedule of this process: the newest one set, else that of the settings. Throws Error if
/// those are malformed.
Schedule schedule();

/// Waits for all devices and then changes the schedule. kRandom begins anew with its seed. Work
/// that other threads submit meanwhile may run in either schedule. Throws as drain_device() does;
/// then nothing has changed. Does not begin the use of the devices.
void set_schedule(const Schedule& schedule);

}  // namespace openreg
