#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace openreg::backend {

/// The device allocator that is registered with PyTorch: stream-ordered, caching. allocate() uses
/// the current device and its current stream. A singleton that is leaked on purpose: tensors may
/// outlive static destruction.
c10::DeviceAllocator& device_allocator();

}  // namespace openreg::backend
