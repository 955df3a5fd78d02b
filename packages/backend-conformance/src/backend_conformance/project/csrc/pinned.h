#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torch_acme {

/// Host memory that copies may use while the host continues.
at::HostAllocator& pinned_allocator();

/// True for pointers into the middle of a block too, such as those of slices.
bool is_pinned(const void* pointer);

}  // namespace torch_acme
