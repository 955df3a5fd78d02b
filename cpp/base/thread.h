#pragma once

#include <functional>

namespace openreg {

/// Starts a detached thread, which debuggers show under `name`, at most 15 characters. It blocks
/// all signals except those of its own faults: the others are for the program's threads. Throws
/// std::system_error if the system refuses it.
void start_detached_thread(const char* name, std::function<void()> main);

/// If the other cores are busy, a thread that is woken preempts the thread that wakes it. After
/// this call the calling thread does not. For threads that run commands: otherwise a launch could
/// last as long as the command.
void disable_wakeup_preemption() noexcept;

}  // namespace openreg
