#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/ipc_file.h"

namespace openreg::backend {

// Device memory that several processes use (torch.multiprocessing). See Note [Blocks that processes
// share] in runtime/ipc_file.cpp for how it is counted.

/// What another process makes the same storage from. Each is for one message.
struct IpcHandle {
  IpcFileName file;
  int device = 0;
  std::size_t offset = 0;  ///< of the block in the file
  std::size_t bytes = 0;   ///< of the storage
  std::uint32_t generation = 0;
};

/// A handle of `storage`, which is not empty. Waits until all work that its device has is done:
/// what the handle leads to is ready. What failed in it stays for those who wait for the results.
/// The memory is kept until the message has been received, and as long as the receiver holds it.
/// Throws c10::Error if the memory was not allocated by the device's allocator, and if the system
/// refuses to share it.
IpcHandle share_storage(const c10::Storage& storage);

/// The storage of a handle of another process, or of this one. `known` may be a storage that came
/// from the same block before: it is returned if it still has that memory. Throws c10::Error.
c10::Storage receive_storage(const IpcHandle& handle, const c10::Storage* known);

/// Called when the last owner here lets go of the block that begins at `address`: whether others
/// use it still. Then it is freed by a later collect_shared().
bool is_kept_for_others(void* address);
/// Frees the blocks that others have let go of meanwhile; whether there were any.
bool collect_shared();
/// The blocks that nobody here owns any more, and that others use.
std::vector<const void*> blocks_kept_for_others();
/// Waits for the work that may use received memory that the program has let go of, gives it back,
/// and collects. May throw c10::Error and what an interrupt throws.
void collect_shared_and_received();

}  // namespace openreg::backend
