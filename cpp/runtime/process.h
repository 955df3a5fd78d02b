#pragma once

namespace openreg {

/// Stops intake, lets the running commands end (not those that may block), and drops the queues. Idempotent. Called by
/// Python's atexit and registered with std::atexit at first use. An error that no call collected is printed once.
void shutdown() noexcept;

/// The process is a forked child of one that used the device: the device cannot be used here.
bool in_bad_fork() noexcept;
/// shutdown() has begun: launches throw, frees do nothing.
bool is_shut_down() noexcept;
/// Throws Error in a forked child and after shutdown. Takes no lock.
void check_usable();
/// The device has been used in this process (the runtime's threads, memory or handlers exist).
bool is_initialized() noexcept;

}  // namespace openreg
