#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/wire/argument_reader.h"

namespace openreg::ops {

/// Reads the values of a command, one after another. A command from outside the process may have
/// any values: what it reads is checked as ArgumentReader does.
class Values {
 public:
  explicit Values(const CommandView& command)
      : command_(command), next_(command.values()), end_(command.payload()) {}

  /// Number of values that can still be read.
  std::size_t left() const {
    return static_cast<std::size_t>(end_ - next_) / sizeof(std::uint64_t);
  }
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, next_, sizeof(T));
    next_ += sizeof(std::uint64_t);
    return value;
  }
  void skip(std::size_t values) { next_ += values * sizeof(std::uint64_t); }
  /// Reads the number of a tensor, and returns the tensor; null if there is none with this number.
  const TensorRecord* tensor() {
    const auto number = next<std::int32_t>();
    const auto tensors = command_.tensors();
    const bool exists = number >= 0 && static_cast<std::size_t>(number) < tensors.size();
    return exists ? &tensors[static_cast<std::size_t>(number)] : nullptr;
  }

 private:
  CommandView command_;
  const std::byte* next_;
  const std::byte* end_;
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
