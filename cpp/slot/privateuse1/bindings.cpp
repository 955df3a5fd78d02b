#include "bindings/bindings.h"

namespace openreg::bindings {

void init_slot(nb::module_& /*m*/) {
  // PyTorch binds all that this slot needs.
}

}  // namespace openreg::bindings
