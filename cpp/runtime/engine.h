#pragma once

namespace openreg {

/// Starts a thread that runs the streams that the scheduler gives it. Nothing joins it. Throws
/// Error if the system refuses the thread.
void start_engine_thread();

/// The calling thread is an engine.
bool on_engine() noexcept;

}  // namespace openreg
