#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/footprint.h"

namespace openreg::memory {

/// One tensor that a command uses, for what checks commands.
struct MemoryUse {
  const void* storage = nullptr;  ///< where its memory begins: device memory, or pinned
  std::size_t storage_bytes = 0;
  Footprint footprint{};
  bool writes = false;
  /// The command uses some of the elements, which depend on values (indexing).
  bool some_elements = false;
  bool pinned = false;

  // For reports:
  std::uint16_t number = 0;    ///< among the tensors of the command
  std::int16_t argument = -1;  ///< of the operator, if known: for RaceHooks::name
  std::uint16_t element = 0;   ///< of that argument: of a list, or as RaceHooks::name counts
  bool in_place = false;       ///< the command is the in-place form of its operator
  std::uint16_t itemsize = 1;
  const char* dtype = "bytes";  ///< static
  // Of the tensor, in elements; valid as long as the command's arguments.
  std::span<const std::int64_t> sizes{};
  std::span<const std::int64_t> strides{};

  /// The use without what ends with the command's arguments.
  MemoryUse without_shape() const {
    auto use = *this;
    use.sizes = use.strides = {};
    return use;
  }
};

}  // namespace openreg::memory
