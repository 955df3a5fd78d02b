#pragma once

namespace openreg {

/// Gives queued commands one second, accepts no more, waits for the running ones (but not for those
/// that may block), and drops the rest of the queues. If called from a command, it waits for none.
/// A thread that still waits for the device never returns from its wait. Idempotent. Called by
/// Python's atexit and registered with std::atexit at first use. An error that no call collected is
/// printed once.
void shutdown() noexcept;

/// How many forks lie between this process and the one that loaded the library. Takes no lock.
int forks() noexcept;
/// Whether the process is a forked child of one that used the device: the device cannot be used
/// here.
bool in_bad_fork() noexcept;
/// Whether shutdown() has begun: launches throw, frees do nothing.
bool is_shut_down() noexcept;
/// Throws Error in a forked child and after shutdown. Takes no lock.
void check_usable();
/// On the first call, registers the exit and fork handlers, reports unknown settings on stderr,
/// starts the first engines and calls Callbacks::begin_use. Does nothing after shutdown. Throws
/// Error in a forked child, if a setting is malformed, and if the system refuses a thread.
void begin_use();
/// Whether begin_use() has succeeded, and neither shutdown nor a fork came after it.
bool is_in_use() noexcept;
/// Whether the device has been used in this process (the runtime's threads, memory or handlers
/// exist).
bool is_initialized() noexcept;

}  // namespace openreg
