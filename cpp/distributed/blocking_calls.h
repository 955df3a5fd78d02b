#pragma once

#include <functional>

namespace openreg::distributed {

/// Runs `call`, which may block for long and must not throw, on a separate thread. Threads are
/// reused; there are as many as there are such calls at the same time. Throws std::system_error if
/// the system refuses a thread; then `call` does not run. Thread safe.
void call_on_own_thread(std::function<void()> call);

}  // namespace openreg::distributed
