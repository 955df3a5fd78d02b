#include "ops/wire/same_device.h"

#include <c10/util/Exception.h>

namespace openreg::ops {

void refuse_mixed_devices(std::string_view op, c10::Device a, c10::Device b) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ", a,
              " and ", b, "! (when checking the arguments of ", op, ")");
}

}  // namespace openreg::ops
