#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "ops/wire/command_layout.h"

namespace openreg::ops {

/// Where a tensor's storage begins, for a kernel: in the aperture, pinned memory or the command.
void* address_of(const CommandView& command, const TensorRecord& tensor);
/// Whether a kernel's pointer is one to device memory.
bool is_device_memory(const void* pointer) noexcept;

/// Reads a command's arguments back on the device, in the order in which they were written. Tensors
/// are CPU tensors over the aperture: one TensorImpl per tensor and one StorageImpl per storage of
/// the call, so that identity and aliasing are kept. Throws if there are no more; otherwise it
/// relies on the layout that ArgumentWriter makes.
class ArgumentReader {
 public:
  static constexpr std::size_t kMostStorages = 64;  // of commands that are alike

  explicit ArgumentReader(std::span<const std::byte> command);
  ~ArgumentReader();
  ArgumentReader(const ArgumentReader&) = delete;
  ArgumentReader& operator=(const ArgumentReader&) = delete;

  /// The next argument, a tensor; undefined if an undefined one was written. Valid as long as the
  /// reader.
  at::Tensor& tensor();

  /// All tensors of the command, in the order in which each was first written.
  c10::ArrayRef<at::Tensor> tensors() const noexcept { return tensors_; }

  /// Where the elements of a tensor are: in device or pinned memory, in the command itself (a
  /// number), or elsewhere, because it is not one of the command's tensors.
  enum class Place : std::uint8_t { kMemory, kCommand, kElsewhere };
  Place place_of(const c10::TensorImpl* tensor) const noexcept;
  /// Number of the command's tensors in device or pinned memory.
  std::size_t tensors_in_memory() const noexcept;
  /// Whether the pointer is one into the command itself.
  bool command_contains(const void* pointer) const noexcept;

  /// Reads a command that is alike (launch/command_cache.h) from its beginning: the tensors get its
  /// storages, of which there are at most kMostStorages. `moved(storage, by)` is called for each
  /// that lies elsewhere, with its number and the difference of the addresses.
  template <class Moved>
  void move_to(std::span<const std::byte> command, Moved&& moved);
  /// Called after write_back_outputs(): whether nothing else refers to a tensor, and the kernel has
  /// not changed the strides of an output.
  bool can_serve_again() const noexcept;

  /// Starts again at the first argument.
  void rewind() noexcept;

  /// Whether a tensor has one of these dtypes.
  bool holds_any(std::span<const c10::ScalarType> dtypes) const noexcept;
  /// Replaces tensors of these dtypes, of half precision, by copies in single precision, until
  /// write_back_outputs(): for a kernel that is slow in their dtypes or lacks them.
  void widen(std::span<const c10::ScalarType> dtypes);
  /// Called after the kernel: gives widened outputs their values, and resolves a conj or neg bit
  /// that the kernel has set on an output, as the device tensor does not get it. Throws if the
  /// kernel has changed the shape of an output.
  void write_back_outputs();

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
  /// Reads the number of elements that follow, each of at least `least` bytes.
  std::size_t count(std::size_t least = 8) {
    const auto elements = value<std::uint64_t>();
    if (elements > static_cast<std::size_t>(end_ - next_) / least) [[unlikely]]
      throw_at_end();
    return elements;
  }

 private:
  void narrow();
  const std::byte* take(std::size_t bytes) {
    const auto* const at = next_;
    if (bytes > static_cast<std::size_t>(end_ - at)) [[unlikely]]
      throw_at_end();
    next_ += (bytes + 7) / 8 * 8;
    return at;
  }
  [[noreturn]] static void throw_at_end();

  std::span<const std::byte> command_;
  c10::SmallVector<at::Tensor, 6> tensors_;
  c10::SmallVector<at::Tensor, 6> narrow_;  // those that are replaced; undefined for the others
  at::Tensor undefined_;
  const std::byte* next_;
  const std::byte* end_;  // of the values
};

template <class Moved>
void ArgumentReader::move_to(std::span<const std::byte> command, Moved&& moved) {
  command_ = command;
  const CommandView view(command);
  next_ = view.values();
  end_ = view.payload();
  std::uint64_t done = 0;
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    auto* const storage =
        tensors_[i++].unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    const auto bit = std::uint64_t{1} << record.storage;
    if (done & bit) continue;
    done |= bit;
    auto* const to = static_cast<std::byte*>(address_of(view, record));
    const auto by = to - static_cast<const std::byte*>(storage->data());
    if (by == 0) continue;
    storage->set_data_ptr_noswap(c10::DataPtr(to, c10::Device(c10::kCPU)));
    moved(record.storage, by);
  }
}

}  // namespace openreg::ops
