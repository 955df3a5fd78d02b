#pragma once

#include <functional>

namespace openreg::distributed {

/// Runs `call`, which may block for long and must not throw, on a thread of its own. Threads are
/// used again; there are as many as there are such calls at one time.
void call_on_own_thread(std::function<void()> call);

}  // namespace openreg::distributed
