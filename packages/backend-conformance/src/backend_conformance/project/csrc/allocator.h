#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace torch_acme {

c10::DeviceAllocator& allocator();

/// Keeps the memory from being reused before the work that is on the stream now, and until the
/// memory is freed, has completed.
void record_stream(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace torch_acme
