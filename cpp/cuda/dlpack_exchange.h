#pragma once

#include "bindings/bindings.h"

namespace openreg::bindings {

/// DLPack's exchange of tensors by functions of C (`Tensor.__dlpack_c_exchange_api__`), without the
/// device's addresses.
void init_dlpack_exchange(nb::module_& m);

}  // namespace openreg::bindings
