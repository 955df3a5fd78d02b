#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace openreg::backend {

/// Page-locked host memory from the system. Thread safe.
namespace pinned_pages {

/// Zeroed pages, at least `bytes` (> 0). As many of them, from the beginning, are locked as
/// RLIMIT_MEMLOCK allows, without a word where it does not: the lock is a matter of speed. Throws
/// std::bad_alloc, and Error in a forked child of a process that has any.
void* map(std::size_t bytes);
/// Takes what map() returned. Does nothing in a forked child.
void unmap(void* pages) noexcept;
/// What map() returned for the pages that `p` points into; nullptr for other memory, and in a
/// forked child, where they are ordinary copies.
void* begin_of(const void* p) noexcept;

/// map() has been called in this process.
bool in_use() noexcept;
/// The process is a forked child of one that has used pinned memory: locks may be held by threads
/// that do not exist here.
bool in_bad_fork() noexcept;
/// Throws Error there.
void check_usable();

/// Bytes that are really locked. Not in a forked child: it takes a lock.
c10::CachingAllocator::Stat locked_bytes();
void reset_accumulated_locked_bytes();
void reset_peak_locked_bytes();

}  // namespace pinned_pages

}  // namespace openreg::backend
