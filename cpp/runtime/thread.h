#pragma once

#include <functional>

namespace openreg {

/// Starts a thread that nobody joins, with all signals blocked: those are for the program's own
/// threads. Throws std::system_error if the system refuses it.
void start_detached_thread(std::function<void()> main);

}  // namespace openreg
