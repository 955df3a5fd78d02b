#pragma once

#include <functional>

namespace openreg {

/// Starts a detached thread with all signals blocked but those of its own faults, so that the
/// program's own threads get them. Throws std::system_error if the system refuses it.
void start_detached_thread(std::function<void()> main);

}  // namespace openreg
