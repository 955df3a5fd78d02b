#pragma once

#include <utility>

namespace openreg::backend {

/// Rethrows the exception being handled as PyTorch's type: a CommandError as c10::AcceleratorError,
/// another openreg::Error as c10::Error, anything else as it is. With
/// TORCH_OPENREG_LAUNCH_BLOCKING=1 a CommandError is rethrown as its cause. The only place where
/// the runtime's errors become torch's.
[[noreturn]] void rethrow_as_torch_error();

/// Runs `f`, with the runtime's errors turned into PyTorch's.
template <class F>
decltype(auto) translate_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_as_torch_error();
  }
}

}  // namespace openreg::backend
