#include "runtime/callbacks.h"

#include <Python.h>
#include <torch/csrc/Exceptions.h>
#include <unistd.h>

#include "backend/kernel_warnings.h"
#include "bindings/bindings.h"

namespace openreg::bindings {

namespace {

unsigned long main_thread = 0;

// A queued kernel may be written in Python: a thread that waits for it while holding the GIL would
// wait for ever. Some of PyTorch's functions (storage[i], numpy(force=True)) do hold it when they
// reach the device.
void* begin_wait() {
  if (!Py_IsInitialized() || !PyGILState_Check()) return nullptr;
  return PyEval_SaveThread();
}

void end_wait(void* state) noexcept {
  if (!state) return;
  // Before Python 3.14, requesting the GIL while another thread finalises the interpreter unwinds
  // this thread, which terminates the process at a noexcept function such as this one. The process
  // is about to end, so this thread stays here.
  while (interpreter_is_finalizing() && !is_main_thread()) ::pause();
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

void check_interrupt() {
  if (!Py_IsInitialized() || !is_main_thread()) return;
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error interrupted;
  interrupted.persist();
  throw interrupted;
}

}  // namespace

bool interpreter_is_finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

bool is_main_thread() noexcept { return PyThread_get_thread_ident() == main_thread; }

void init_waits(nb::module_&) {
  const auto ident = nb::module_::import_("threading").attr("main_thread")().attr("ident");
  main_thread = nb::cast<unsigned long>(ident);

  Callbacks callbacks;
  callbacks.begin_wait = &begin_wait;
  callbacks.end_wait = &end_wait;
  callbacks.check_interrupt = &check_interrupt;
  install_callbacks(callbacks);
  backend::KernelWarnings::python_handles_warnings();
}

}  // namespace openreg::bindings
