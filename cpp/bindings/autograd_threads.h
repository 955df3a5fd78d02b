#pragma once

namespace openreg::bindings {

/// Returns when the autograd engine's device threads are idle and hold no Python objects, so that
/// the interpreter may end. For exit, after shutdown(): from then on no backward pass can proceed.
/// Does nothing if autograd was never used. Gives up after ten seconds if a thread does not become
/// idle. Must be called without the GIL.
void wait_for_autograd_threads() noexcept;

}  // namespace openreg::bindings
