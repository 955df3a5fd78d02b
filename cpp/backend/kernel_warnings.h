#pragma once

#include <c10/util/Exception.h>

namespace openreg::backend {

/// Warnings that kernels emit where Python has no warning handler: on engine threads, and on hosts
/// in calls for which PyTorch installs none (torch.accelerator.synchronize). They are kept, and
/// emitted again by the next operator that waits for a device. On a waiting host with a handler,
/// which runs commands itself, they are emitted as usual.
class KernelWarnings {
 public:
  /// Declares that this is a Python program: then a thread without its own handler lacks one only
  /// for the moment.
  static void python_handles_warnings() noexcept;
  /// Whether the calling thread's warnings are to be kept.
  static bool has_no_handler();
  /// The handler of engine threads while they run commands.
  static c10::WarningHandler& keeper();
  /// Emits the kept warnings on the calling thread. Throws what its handler throws.
  static void raise_kept();
};

}  // namespace openreg::backend
