#pragma once

#include <cstddef>

namespace openreg {

/// Memory for fences. One thread records, and another, which runs the stream, gives the memory
/// back: the general allocator pays for that at each fence, this one at each hundredth. Thread
/// safe.
void* allocate_fence(std::size_t bytes);
void free_fence(void* memory) noexcept;

}  // namespace openreg
