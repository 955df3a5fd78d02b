#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

namespace openreg::backend {

/// Copies device memory to device memory, on the same or on another device, asynchronously and in
/// order on the current stream of the destination's device. Between devices, the copy is also
/// ordered after and before the work of the source's current stream. Throws as submit() does.
void copy_bytes(void* to, const void* from, std::size_t bytes);

/// Replaces the memory of `storage` by `bytes` bytes, with as much of the current contents as fits,
/// in order on the current stream of its device. Throws c10::Error if the storage is not resizable,
/// and as allocate_raw() and submit() do; the storage is then unchanged.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace openreg::backend
