#pragma once

#include <functional>

namespace openreg {

/// Starts a detached thread. It blocks all signals except those of its own faults: the others are
/// for the program's threads. Throws std::system_error if the system refuses it.
void start_detached_thread(std::function<void()> main);

}  // namespace openreg
