#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace openreg::ops {

/// The tensors of a command, as CPU tensors over the aperture: one TensorImpl per tensor and one
/// StorageImpl per storage of the call, so that identity and aliasing are kept.
struct CommandTensors {
  c10::SmallVector<c10::Storage, 5> storages;
  c10::SmallVector<at::Tensor, 6> tensors;
};

/// Reads a command's arguments back on the device, in the order in which they were written. Throws
/// if there are no more; that the rest of the command is as ArgumentWriter makes it is taken for
/// granted (expect_layout).
class ArgumentReader {
 public:
  explicit ArgumentReader(std::span<const std::byte> command);
  ~ArgumentReader();
  ArgumentReader(const ArgumentReader&) = delete;
  ArgumentReader& operator=(const ArgumentReader&) = delete;

  /// The next argument, a tensor; undefined where an undefined one was written. Valid as long as
  /// the reader.
  at::Tensor& tensor();

  /// The next argument is the first one again.
  void rewind() noexcept;

  /// After the kernel: an output that it left conjugated or negated by a bit is resolved, since the
  /// device tensor does not get the bit. Throws if it gave an output another shape.
  void settle_outputs();

  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T v;
    std::memcpy(&v, take(sizeof(T)), sizeof(T));
    return v;
  }
  /// Points into the command: valid while it runs.
  template <class T>
  std::span<const T> array() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    const auto length = count(sizeof(T));
    return {reinterpret_cast<const T*>(take(length * sizeof(T))), length};
  }
  /// How many elements follow, each of `least` bytes or more.
  std::size_t count(std::size_t least = 8) {
    const auto elements = value<std::uint64_t>();
    if (elements > static_cast<std::size_t>(end_ - next_) / least) [[unlikely]]
      throw_at_end();
    return elements;
  }

 private:
  const std::byte* take(std::size_t bytes) {
    const auto* const at = next_;
    if (bytes > static_cast<std::size_t>(end_ - at)) [[unlikely]]
      throw_at_end();
    next_ += (bytes + 7) / 8 * 8;
    return at;
  }
  [[noreturn]] static void throw_at_end();

  std::span<const std::byte> command_;
  CommandTensors made_;
  at::Tensor undefined_;
  const std::byte* next_;
  const std::byte* end_;  // of the values
};

}  // namespace openreg::ops
