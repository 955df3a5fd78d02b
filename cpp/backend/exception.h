#pragma once

#include <exception>
#include <string>
#include <utility>

namespace openreg::backend {

/// The message of an exception, without a backtrace.
std::string message_of(const std::exception_ptr& error);

/// Rethrows the exception being handled as PyTorch's type: a CommandError, InjectedError,
/// DeviceError or CaptureError as c10::AcceleratorError, a memory::RaceError as throw_race_error()
/// says, another openreg::Error as c10::Error, anything else unchanged. The only place where the
/// runtime's errors become PyTorch's.
[[noreturn]] void rethrow_as_torch_error();

/// Runs `f`, and converts the runtime's errors to PyTorch's.
template <class F>
decltype(auto) translate_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_as_torch_error();
  }
}

}  // namespace openreg::backend
