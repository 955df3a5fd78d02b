#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

namespace torch_acme {

/// Moves the storage to new memory of this size. In stream order: queued commands may still use the
/// old memory.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

/// The same if it is smaller.
void grow_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace torch_acme
