#pragma once

#include <c10/core/Storage.h>

namespace openreg::backend {

// Storages that share memory until one of them is written to (lazy clones), and streams. See Note
// [Shared memory] in shared_memory.cpp.

/// From now on the first write to `storage`, which shares memory, is ordered, on the current stream
/// of its device, after what other streams do with that memory.
void order_first_write(const c10::Storage& storage);

/// Called before work on the current stream of its device reads `storage`, which shares memory.
void note_read_of_shared(const c10::Storage& storage);
/// Called before work reads `storage`, which may share memory. Costs two instructions if it does
/// not.
inline void note_read(const c10::Storage& storage) {
  if (storage.unsafeGetStorageImpl()->has_materializer()) [[unlikely]]
    note_read_of_shared(storage);
}

}  // namespace openreg::backend
