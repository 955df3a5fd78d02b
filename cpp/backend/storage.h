#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

namespace openreg::backend {

/// Copies device memory to device memory, on the same or on another device, in order on the current
/// stream of the destination's device; asynchronous. Across devices the source's current stream is
/// ordered before and after it.
void copy_bytes(void* to, const void* from, std::size_t bytes);

/// Gives `storage` memory of `bytes` bytes with as much of the present contents as fits, in order
/// on the current stream.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace openreg::backend
