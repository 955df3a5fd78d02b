#pragma once

#include <c10/util/Exception.h>

namespace openreg::backend {

/// Warnings that kernels emit on a thread that has no warning handler of Python: on engines, and on
/// hosts in calls for which PyTorch installs none (torch.accelerator.synchronize). The first 100
/// are kept, and the next call that waits for a device and has a handler emits them. On a waiting
/// host with a handler, which runs commands itself, they are emitted as usual. Thread safe.
class KernelWarnings {
 public:
  /// Declares that this is a Python program: from now on, a thread without its own handler is
  /// assumed to lack one only for the moment.
  static void python_handles_warnings() noexcept;
  /// Whether the calling thread's warnings are to be kept.
  static bool has_no_handler();
  /// The handler of engine threads while they run commands.
  static c10::WarningHandler& engine_handler();
  /// Emits the kept warnings on the calling thread, if it has a handler. Throws what the handler
  /// throws.
  static void emit_pending();
};

}  // namespace openreg::backend
