#pragma once

namespace openreg::bindings {

/// Returns when the autograd engine's device threads are idle and hold nothing of Python's, so that
/// the interpreter may end. For exit, after shutdown(): from then on no backward gets far. Where
/// autograd was never used it does nothing. A thread that does not become idle is given up after
/// ten seconds. Call it without the GIL.
void settle_autograd_threads() noexcept;

}  // namespace openreg::bindings
