#include <torch/csrc/Generator.h>

#include "backend/exception.h"
#include "backend/generator.h"
#include "bindings/bindings.h"

namespace openreg::bindings {

namespace {

nb::object default_generator(int index) {
  PyObject* generator = backend::translate_errors([index] {
    return THPGenerator_Wrap(backend::default_generator(static_cast<c10::DeviceIndex>(index)));
  });
  if (!generator) throw nb::python_error();
  return nb::steal(generator);
}

}  // namespace

void init_random(nb::module_& m) {
  m.def("default_generator", &default_generator, nb::arg("index"),
        "The device's default torch.Generator, always the same object.");
}

}  // namespace openreg::bindings
