#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "runtime/ipc_file.h"

namespace openreg::backend {

/// Memory of other processes that this one uses. Thread safe.

/// The memory of a message (see IpcFile): of the block at `offset` in the file, `bytes` of it, on
/// `device`. Throws openreg::Error.
c10::DataPtr import_block(const IpcFileName& name, int device, std::size_t offset,
                          std::size_t bytes, std::uint32_t generation);

/// Throws the openreg::Error for a message that IpcFile::receive() says was read before.
[[noreturn]] void refuse_second_reading();

/// Where memory that was imported comes from.
struct Imported {
  IpcFile* file;
  std::size_t offset;
};
/// {nullptr, 0} if `data` is not of import_block(). Valid while `data` is.
Imported imported_from(const c10::DataPtr& data) noexcept;

/// Waits for the work that may use imported memory whose last owner has let go of it, and gives it
/// back. Otherwise a thread of its own does so.
void release_imports();

}  // namespace openreg::backend
