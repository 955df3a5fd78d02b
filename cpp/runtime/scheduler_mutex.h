#pragma once

#include "base/mutex.h"

namespace openreg {

/// The scheduler's mutex: it guards the ownership of streams. It is not a member of the Scheduler,
/// of which there is only one, so that the annotations of streams and waiters can name it. See Note
/// [Lock order].
inline constinit Mutex scheduler_mutex;

}  // namespace openreg
