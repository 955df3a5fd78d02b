#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <optional>

namespace openreg::backend {

/// Pinned host memory: PyTorch's caching host allocator over pages that are locked as far as the
/// system allows. A singleton that is leaked on purpose: tensors may outlive static destruction.
/// Copies that do not wait must call record_event() on it: nothing else keeps the memory from being
/// reused too early.
at::HostAllocator& host_allocator();

/// Whether `p` points into memory of host_allocator(), interior pointers included. Thread safe,
/// never throws.
bool is_pinned(const void* p) noexcept;

struct HostMemoryStats {
  at::HostStats blocks;                      // as PyTorch counts, for every accelerator
  c10::CachingAllocator::Stat locked_bytes;  // what the system has actually locked
};

/// nullopt before the first use of the device or of pinned memory, and in a forked child of a
/// process that has used them. The resets of host_allocator() reset the locked bytes as well.
std::optional<HostMemoryStats> host_memory_stats();

}  // namespace openreg::backend
