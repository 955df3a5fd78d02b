#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "address_space/ipc_file.h"

namespace openreg::backend {

// Device memory that several processes use (torch.multiprocessing). See Note [Blocks that processes
// share] in address_space/ipc_file.cpp for how its use is counted.

/// The data from which another process makes the same storage. Each handle is for one message.
struct IpcHandle {
  IpcFileName file;
  int device = 0;
  std::size_t offset = 0;  ///< of the block in the file
  std::size_t bytes = 0;   ///< of the storage
  std::uint32_t generation = 0;
};

/// A handle of `storage`, which must not be empty. Waits until the device has done all work that it
/// has, so that the contents are ready; collects no failure. The memory is kept until the message
/// has been received, and as long as the receiver holds it. Memory that was itself received is
/// passed on. Throws c10::Error if the memory comes from neither the device's allocator nor another
/// process, and if the system refuses to share it.
IpcHandle share_storage(const c10::Storage& storage);

/// The storage of a handle of another process, or of this one. `known` may be a storage that came
/// from the same block before: it is returned if it still has that memory. Throws c10::Error if
/// there is no such device here, if the message was read before, and if the system refuses.
c10::Storage receive_storage(const IpcHandle& handle, const c10::Storage* known);

/// Takes back the message of a handle that this process has made, if it will not be received.
void withdraw_message(const IpcHandle& handle);

/// Called when a storage in this process releases the block that begins at `address`. Returns
/// whether the block is still in use: by another storage here, or by other processes, in which case
/// a later collect_shared() frees it.
bool is_kept_for_others(void* address);
/// Frees the blocks that other processes have released. Returns whether there were any.
bool collect_shared();
/// The blocks that have no owner left in this process, and that others use.
std::vector<const void*> blocks_kept_for_others();
/// Waits for the work that may use received memory that the program has freed, releases that
/// memory, and then calls collect_shared(). Does nothing before the first use of device memory. May
/// throw c10::Error and what an interrupt throws.
void collect_shared_and_received();

}  // namespace openreg::backend
