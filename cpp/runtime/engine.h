#pragma once

#include <optional>

#include "runtime/command.h"

namespace openreg {

/// Starts a thread that runs the streams that the scheduler assigns to it. It is never joined.
/// Throws Error if the system refuses the thread.
void start_engine_thread(EngineKind kind);

/// The kind of engine that the calling thread is, if any.
std::optional<EngineKind> this_engine() noexcept;

}  // namespace openreg
