#pragma once

#include <c10/core/Allocator.h>

namespace at {
struct HostAllocator;
}

namespace openreg::backend {

/// Pinned host memory: PyTorch's caching host allocator over pages that are locked as far as the
/// system allows. A singleton that is leaked on purpose: tensors may outlive static destruction.
/// Copies that do not wait must call record_event() on it: nothing else keeps the memory from being
/// reused too early.
at::HostAllocator& host_allocator();

/// `p` points into memory of host_allocator(), interior pointers included. Thread safe, never
/// throws.
bool is_pinned(const void* p) noexcept;

}  // namespace openreg::backend
