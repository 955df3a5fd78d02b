#pragma once

#include <functional>

namespace openreg::distributed {

/// Runs `call`, which may block for a long time and must not throw, on a separate thread. Threads
/// are reused; a new one starts only if none is idle. Throws std::system_error if the system
/// refuses a thread; then `call` does not run. Thread safe.
void run_on_separate_thread(std::function<void()> call);

}  // namespace openreg::distributed
