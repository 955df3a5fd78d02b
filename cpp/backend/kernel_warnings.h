#pragma once

#include <c10/util/Exception.h>

namespace openreg::backend {

/// Warnings that kernels raise where no Python listens: on engine threads, and on hosts in calls
/// that PyTorch does not listen to (torch.accelerator.synchronize). They are kept, and raised again
/// by the next operator that waits for a device. Else, on a waiting host that runs commands itself,
/// they go their usual way.
class KernelWarnings {
 public:
  /// Says that this is a Python program: then a thread without a handler of its own only has none
  /// for the moment.
  static void python_listens() noexcept;
  /// Whether the calling thread's warnings are to be kept.
  static bool nobody_listens();
  /// The handler of engine threads while they run commands.
  static c10::WarningHandler& keeper();
  /// Raises what has been kept as warnings of the calling thread. Throws what its handler throws.
  static void raise_kept();
};

}  // namespace openreg::backend
