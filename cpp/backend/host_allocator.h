#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <cstddef>
#include <optional>

#include "memory/pinned/pinned_guard.h"
#include "memory/statistics.h"

namespace openreg::backend {

/// Pinned host memory: PyTorch's caching host allocator over pages that are locked as far as the
/// system allows. A singleton that is leaked deliberately: tensors may outlive static destruction.
/// Copies that do not wait must call record_event() on it: nothing else keeps the memory from being
/// reused too early.
at::HostAllocator& host_allocator();

/// Whether `p` points into memory of host_allocator(), interior pointers included. Thread safe,
/// never throws.
bool is_pinned(const void* p) noexcept;

/// Makes memory of the program pinned, as cudaHostRegister does: copies to and from it need not
/// wait. The caller keeps it until unregister_pinned(). Throws c10::Error if part of it is pinned
/// already.
void register_pinned(void* memory, std::size_t bytes);
/// Unpins the memory, and waits for the devices, whose copies may still use it; collects no
/// failure. Does nothing in a forked child, where the memory is not pinned. Throws c10::Error if no
/// memory was registered at this address.
void unregister_pinned(void* memory);

/// Switches the PinnedGuard on, or off (nullopt). Memory that is allocated from now on is guarded:
/// the cache, whose blocks are not, is emptied. Needs HappensBefore.
void guard_pinned_memory(std::optional<memory::PinnedGuard::Reaction> reaction);

struct HostMemoryStats {
  at::HostStats blocks;       // as PyTorch counts, for every accelerator
  memory::Stat locked_bytes;  // what the system has actually locked
};

/// Figures of pinned memory. Nullopt before the first use of the device or of pinned memory, and in
/// a forked child of a process that has used them. The resets of host_allocator() reset the locked
/// bytes as well.
std::optional<HostMemoryStats> host_memory_stats();

}  // namespace openreg::backend
