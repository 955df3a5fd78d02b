#pragma once

namespace openreg {

/// Gives queued commands one second, accepts no more, waits for the running ones (but not for those
/// that may block), and drops the rest of the queues. If called from a command, it waits for none.
/// A thread that still waits for the device never returns from its wait. Idempotent. Called when
/// Python has ended and registered with std::atexit at first use. An error that no call collected
/// is printed once.
void shutdown() noexcept;

/// Gives queued commands one second, and prints errors that no call collected. If they have
/// completed by then, the calling thread may go on using the device, or begin to, until shutdown();
/// for other threads it has been shut down. Else the same as shutdown(). For the time between the
/// last of Python's functions at exit and the end of Python.
void restrict_to_this_thread() noexcept;

/// How many forks lie between this process and the one that loaded the library. Takes no lock.
int forks() noexcept;
/// Whether the process is a forked child of one that used the device: the device cannot be used
/// here.
bool in_bad_fork() noexcept;
/// Whether shutdown() has begun: launches throw, frees do nothing.
bool is_shut_down() noexcept;
/// Throws Error in a forked child, after shutdown, and in a thread for which it has been shut down.
/// Takes no lock.
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
