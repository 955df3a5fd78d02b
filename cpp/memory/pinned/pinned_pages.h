#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/statistics.h"

namespace openreg::memory {

/// Page-locked host memory: from the system, and of the program. Thread safe.
namespace pinned_pages {

/// Zeroed pages, at least `bytes` (> 0). As many of them, from the beginning, are locked as
/// RLIMIT_MEMLOCK allows; there is no warning if it does not allow all, because locking only
/// affects speed. Throws std::bad_alloc, also if the machine cannot hold them, and Error if
/// in_bad_fork().
void* map(std::size_t bytes);
/// Releases pages of map(). Does nothing in a forked child.
void unmap(void* pages) noexcept;
/// Adds memory of the program, of `bytes` (> 0), which stays where it is until remove(). Locks what
/// the limit allows. Throws Error if part of it is pinned already, and if in_bad_fork().
void add(void* memory, std::size_t bytes);
/// Takes out memory of add(). False if there is none at this address, and in a forked child.
bool remove(void* memory) noexcept;
/// The beginning of the range of map() or add() that `p` points into; nullptr for other memory, and
/// in a forked child, where the pages are ordinary copies.
void* begin_of(const void* p) noexcept;
/// Where a command finds this memory. With PinnedGuard, pages of map() have another address for the
/// device, without protection; `p` itself for all other memory.
std::uintptr_t device_address(std::uintptr_t p) noexcept;

/// How many bytes more the machine can hold. Does not initialise the devices.
std::size_t machine_left();

/// Whether map() or add() has been called in this process.
bool in_use() noexcept;
/// Whether the process is a forked child of one that has called map() or add(): the lock may be
/// held by a thread that does not exist here.
bool in_bad_fork() noexcept;
/// Throws Error in such a child.
void check_usable();

/// Bytes that are actually locked: none before the first map(), and if in_bad_fork().
Stat locked_bytes();
void reset_accumulated_locked_bytes();
void reset_peak_locked_bytes();

}  // namespace pinned_pages

}  // namespace openreg::memory
