#pragma once

#include "runtime/mutex.h"

namespace openreg {

/// The scheduler's: it guards who owns which stream. Beside the Scheduler, of which there is one,
/// so that what it guards in streams and waiters can name it. See Note [Lock order].
inline constinit Mutex scheduler_mutex;

}  // namespace openreg
