#pragma once

#include <c10/util/Exception.h>

namespace openreg::backend {

/// Warnings that kernels raise on engine threads, where no Python listens. They are kept, and
/// raised again by the next host thread that waits for a device. On a waiting host that runs
/// commands itself they go their usual way.
class KernelWarnings {
 public:
  /// The handler of engine threads while they run commands.
  static c10::WarningHandler& keeper();
  /// Raises what has been kept as warnings of the calling thread. Throws what its handler throws.
  static void raise_kept();
};

}  // namespace openreg::backend
