#pragma once

#include <cstddef>

namespace openreg {

/// Allocates memory for a fence; `bytes` is the same in all calls. One thread records a fence, and
/// another, which runs the stream, frees it. A general allocator pays for that on every fence; this
/// one pays on one fence in a hundred. Thread safe.
void* allocate_fence(std::size_t bytes);
void free_fence(void* memory) noexcept;

}  // namespace openreg
