#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "address_space/ipc_file.h"

namespace openreg::backend {

// Memory of other processes that this process uses. Thread safe.

/// The memory of a message (see IpcFile): the first `bytes` of the block at `offset` in the file,
/// mapped on `device`. Throws openreg::Error.
c10::DataPtr import_block(const IpcFileName& name, int device, std::size_t offset,
                          std::size_t bytes, std::uint32_t generation);

/// Takes back a message about a block of another process; does nothing if that process has ended.
void withdraw_from_owner(const IpcFileName& name, std::size_t offset,
                         std::uint32_t generation) noexcept;

/// Throws the openreg::Error for a message for which IpcFile::receive() returned false.
[[noreturn]] void refuse_second_reading();

/// Where memory that was imported comes from.
struct Imported {
  IpcFile* file;
  std::size_t offset;
};
/// {nullptr, 0} if `data` is not of import_block(). Valid while `data` is.
Imported imported_from(const c10::DataPtr& data) noexcept;

/// Waits for the work that may use imported memory whose last owner has freed it, and releases that
/// memory; without this call a background thread does so. May throw openreg::Error and what an
/// interrupt throws: the memory then stays for the next call.
void release_imports();

}  // namespace openreg::backend
