#pragma once

namespace openreg {

/// Gives queued commands a second, stops intake, lets the running commands end (not those that may
/// block), and drops the rest of the queues; called from a command, it waits for none. A thread
/// that waits for the device stays where it is. Idempotent. Called by Python's atexit and
/// registered with std::atexit at first use. An error that no call collected is printed once.
void shutdown() noexcept;

/// The process is a forked child of one that used the device: the device cannot be used here.
bool in_bad_fork() noexcept;
/// shutdown() has begun: launches throw, frees do nothing.
bool is_shut_down() noexcept;
/// Throws Error in a forked child and after shutdown. Takes no lock.
void check_usable();
/// Registers the exit and fork handlers, names unknown settings on stderr and starts the first
/// engine, the first time. After shutdown it does nothing. Throws Error in a forked child, if a
/// setting is malformed, and if there is no thread.
void begin_use();
/// The device has been used in this process (the runtime's threads, memory or handlers exist).
bool is_initialized() noexcept;

}  // namespace openreg
