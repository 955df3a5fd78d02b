#pragma once

#include <functional>

namespace openreg {

/// Starts a detached thread, which debuggers show under `name`, at most 15 characters. It blocks
/// all signals except those of its own faults: the others are for the program's threads. Throws
/// std::system_error if the system refuses it.
void start_detached_thread(const char* name, std::function<void()> main);

/// If the other cores are busy, an ordinary thread takes the core of the thread that wakes it.
/// After this call the calling thread does not. For threads that run commands: a launch would last
/// as long as what it launched.
void let_wakers_go_on() noexcept;

}  // namespace openreg
