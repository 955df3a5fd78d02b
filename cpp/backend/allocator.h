#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <vector>

namespace openreg {
class Stream;
}

namespace openreg::backend {

/// The device allocator that is registered with PyTorch: stream-ordered, caching. allocate() uses
/// the current device and its current stream. Thread safe. A singleton that is leaked deliberately:
/// tensors may outlive static destruction.
c10::DeviceAllocator& device_allocator();

/// Memory of the device allocator for the work of `stream`, whichever stream is current. Throws as
/// allocate_raw() does.
c10::DataPtr allocate_for(openreg::Stream& stream, std::size_t bytes);

/// The streams whose work may use the memory that begins at `address`, a device address: the one
/// that it was allocated for, and those that were recorded. Throws openreg::Error if no block that
/// is in use begins there.
std::vector<openreg::Stream*> streams_of(const void* address);

/// Device memory without a tensor: `bytes` on the device of `stream`, for work on that stream;
/// nullptr for 0 bytes. Throws c10::OutOfMemoryError; c10::Error after shutdown, in a forked child,
/// and if a setting is malformed or no addresses can be reserved; and what an OutOfMemoryHook
/// throws.
void* allocate_raw(std::size_t bytes, openreg::Stream& stream);
/// Frees memory of allocate_raw(); nullptr is ignored. Throws c10::Error, and changes nothing, if
/// no block that is in use begins at `address`. Does nothing after shutdown and in a forked child.
void deallocate_raw(void* address);

/// Called when a device's memory has run out, on the thread that requests `bytes`; no lock is held.
/// True: it has freed memory; the allocation is tried again, and the hook is called again if that
/// fails. The hook's own allocations do not call it. The allocation throws what the hook throws.
using OutOfMemoryHook = bool (*)(int device, std::size_t bytes);
/// Replaces the previous hook; nullptr: none is called.
void set_out_of_memory_hook(OutOfMemoryHook hook) noexcept;

/// Applies PYTORCH_ALLOC_CONF to the devices' heaps, and from then on also settings made at run
/// time (torch._C._accelerator_setAllocatorSettings). Later calls do nothing. Warns once about keys
/// that PyTorch's parser accepts but that have no effect here. Throws c10::Error if the variable is
/// malformed; the next call then tries again. Thread safe.
void follow_allocator_settings();

/// Whether the devices' heaps follow CUDA's rules from now on (memory::Segments::kCuda, or
/// kCudaExpandable with PyTorch's setting expandable_segments) even if the devices compute; if they
/// do not, they always do. Throws openreg::Error, and changes nothing, if a device has memory that
/// it got by other rules. Thread safe.
void use_cuda_segments(bool use);

}  // namespace openreg::backend
