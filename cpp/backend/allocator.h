#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <vector>

namespace openreg {
class Stream;
}

namespace openreg::backend {

/// The device allocator that is registered with PyTorch: stream-ordered, caching. allocate() uses
/// the current device and its current stream. A singleton that is leaked on purpose: tensors may
/// outlive static destruction.
c10::DeviceAllocator& device_allocator();

/// The same for the work of `stream`, whatever is current. Throws c10::OutOfMemoryError.
c10::DataPtr allocate_for(openreg::Stream& stream, std::size_t bytes);

/// The streams whose work may use the memory that begins at `address`: the one that it was
/// allocated for, and those that were recorded. Throws openreg::Error if it is not in use.
std::vector<openreg::Stream*> streams_of(const void* address);

/// Device memory without a tensor: `bytes` on the device of `stream` for its work; nullptr for no
/// bytes. Throws c10::OutOfMemoryError.
void* allocate_raw(std::size_t bytes, openreg::Stream& stream);
/// Takes what allocate_raw() gave; nullptr is ignored. Throws c10::Error, and changes nothing,
/// where no block that is in use begins at `address`.
void deallocate_raw(void* address);

/// Asked when a device's memory has run out, on the thread that wants `bytes`, under no lock. True:
/// it has freed some, and the allocation is tried again. It is not asked within itself. What it
/// throws, the allocation throws.
using OutOfMemoryHook = bool (*)(int device, std::size_t bytes);
/// Replaces the one before; nullptr: none is asked.
void set_out_of_memory_hook(OutOfMemoryHook hook) noexcept;

}  // namespace openreg::backend
