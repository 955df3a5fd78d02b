#include "backend/exception.h"

#include <c10/util/Exception.h>

#include <string>

#include "runtime/error.h"
#include "runtime/settings.h"

namespace openreg::backend {

namespace {

// AcceleratorError carries a driver's error number. We have one reason to fail: a command threw.
constexpr std::int32_t kCommandFailed = 1;

// c10::Error::what() ends with a C++ backtrace, which does not belong into a sentence.
std::string sentence_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

c10::SourceLocation here() { return {"rethrow_as_torch_error", __FILE__, __LINE__}; }

}  // namespace

void rethrow_as_torch_error() {
  try {
    throw;
  } catch (const CommandError& e) {
    // The failed command was the caller's own, which has just waited for it: what it raised is what
    // CPU raises.
    if (settings().launch_blocking) std::rethrow_exception(e.cause());
    throw c10::AcceleratorError(
        here(), kCommandFailed,
        CommandError::message(e.kernel(), e.device(), e.stream(), sentence_of(e.cause())));
  } catch (const Error& e) {
    throw c10::Error(here(), e.what());
  }
}

}  // namespace openreg::backend
