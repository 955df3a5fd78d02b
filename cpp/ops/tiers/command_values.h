#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/wire/argument_reader.h"

namespace openreg::ops {

/// Reads the values of a command, one after another.
class Values {
 public:
  explicit Values(const CommandView& command) : command_(command), next_(command.values()) {}

  template <class T>
  T next() {
    T value;
    std::memcpy(&value, next_, sizeof(T));
    next_ += sizeof(std::uint64_t);
    return value;
  }
  void skip(std::size_t values) { next_ += values * sizeof(std::uint64_t); }
  /// Reads the number of a tensor, and returns the tensor; null if it is undefined.
  const TensorRecord* tensor() {
    const auto number = next<std::int32_t>();
    if (number == kUndefined) return nullptr;
    return &command_.tensors()[static_cast<std::size_t>(number)];
  }

 private:
  CommandView command_;
  const std::byte* next_;
};

inline bool is_contiguous(const CommandView& command, const TensorRecord& tensor) {
  const auto* const sizes = command.sizes(tensor);
  const auto* const strides = command.strides(tensor);
  std::int64_t stride = 1;
  for (auto dim = std::size_t{command.shape(tensor).dim}; dim-- > 0; stride *= sizes[dim]) {
    if (sizes[dim] == 0) return true;
    if (sizes[dim] != 1 && strides[dim] != stride) return false;
  }
  return true;
}

inline std::byte* elements_of(const CommandView& command, const TensorRecord& tensor) {
  const auto itemsize = static_cast<std::int64_t>(c10::elementSize(command.shape(tensor).type()));
  return static_cast<std::byte*>(address_of(command, tensor)) + tensor.storage_offset * itemsize;
}

}  // namespace openreg::ops
