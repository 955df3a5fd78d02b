#include "runtime/remote_runner.h"

namespace openreg {

// Not inline: the extension module must read this library's.
constinit std::atomic<RemoteRunner::Find> RemoteRunner::find_{nullptr};

void RemoteRunner::begin_use(Find find) noexcept { find_.store(find, std::memory_order_relaxed); }

}  // namespace openreg
