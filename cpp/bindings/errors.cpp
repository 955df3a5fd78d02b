#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <exception>

#include "backend/exception.h"
#include "base/error.h"
#include "bindings/bindings.h"

namespace openreg::bindings {

namespace {

// Our functions raise the same exceptions as PyTorch's for the same errors: torch.OutOfMemoryError,
// torch.AcceleratorError, IndexError and so on. Other exceptions are left to nanobind's own
// translation.
void translate(const std::exception_ptr& exception, void*) {
  try {
    try {
      std::rethrow_exception(exception);
    } catch (const Error&) {
      backend::rethrow_as_torch_error();
    }
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const torch::PyTorchError&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const python_error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace

void init_errors(nb::module_&) { nb::register_exception_translator(&translate); }

}  // namespace openreg::bindings
