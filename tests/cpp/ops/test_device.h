#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

/// The device that the tests of operators use.
inline const c10::Device kDevice(backend::kDeviceType, 0);

inline at::Tensor floats(at::IntArrayRef sizes) { return empty_on(kDevice, sizes, at::kFloat); }

}  // namespace openreg::ops
