#pragma once

#include <cstddef>

namespace openreg::backend {

/// Page-locked host memory from the system. Thread safe.
namespace pinned_pages {

/// Zeroed pages, at least `bytes` (> 0); locked as far as RLIMIT_MEMLOCK allows, and without a word
/// where it does not: the lock is a matter of speed. Throws std::bad_alloc, and Error in a forked
/// child of a process that has any.
void* map(std::size_t bytes);
/// Takes what map() returned. Does nothing in a forked child.
void unmap(void* pages) noexcept;
/// `p` points into pages of map().
bool contain(const void* p) noexcept;
/// The process is a forked child of one that has used pinned memory: locks may be held by threads
/// that do not exist here.
bool in_bad_fork() noexcept;

}  // namespace pinned_pages

}  // namespace openreg::backend
