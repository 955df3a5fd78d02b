#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

namespace openreg::backend {

/// Copies device memory to device memory, on the same or on another device, asynchronously and in
/// order on the current stream of the destination's device. Between devices, the copy is also
/// ordered after and before the work of the source's current stream.
void copy_bytes(void* to, const void* from, std::size_t bytes);

/// Gives `storage` memory of `bytes` bytes, with as much of the current contents as fits, in order
/// on the current stream.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace openreg::backend
