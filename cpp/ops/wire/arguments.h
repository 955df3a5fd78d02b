#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/launch/told_warnings.h"

namespace openreg::ops {

enum class Access : std::uint8_t { kRead, kWrite };

/// How much of its tensors a call's signature tells: dtypes and dimensions, also which sizes are
/// equal (what kernels check of them), or all that decides the shapes of results.
enum class Detail : std::uint8_t { kDtypes, kEqualSizes, kShapes };

/// Writes a command's arguments as flat bytes, in the order of the calls. See Note [Arguments on
/// the wire] in arguments.cpp. Tensors travel as metadata, never as owners: what is written holds
/// device pointers, sizes and values only, so that a command can be encoded, shown, and run
/// elsewhere.
class ArgumentWriter {
 public:
  /// `op` names the operator in errors. Tensors on another device than `device` are refused with
  /// CPU's sentence, but 0-dim CPU tensors, whose value is copied in.
  ArgumentWriter(const char* op, c10::Device device, Detail detail = Detail::kDtypes);

  /// Writes a device tensor, a 0-dim CPU tensor (its value), or an undefined one.
  void tensor(const at::TensorBase& tensor, Access access = Access::kRead);
  /// Also takes tensors of other openreg devices, for copies between devices.
  void tensor_of_any_device(const at::TensorBase& tensor, Access access);
  /// Writes a CPU tensor's elements themselves, contiguous, at most kMaxInlineBytes.
  void inline_tensor(const at::TensorBase& cpu_tensor);
  /// Writes a CPU tensor in pinned memory: the one host pointer a command may hold. The caller
  /// keeps it alive.
  void pinned_tensor(const at::TensorBase& cpu_tensor, Access access);

  template <class T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&v, sizeof(T));
    if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) sign(static_cast<std::uint64_t>(v));
  }
  template <class T>
  void array(const T* data, std::size_t count) {
    if constexpr (std::is_same_v<T, char>) {
      for (std::size_t i = 0; i < count; ++i) sign(static_cast<std::uint64_t>(data[i]));
    }
    static_assert(std::is_trivially_copyable_v<T>);
    value<std::uint64_t>(count);
    bytes(data, count * sizeof(T));
  }

  /// Keeps a temporary alive until after the launch, so that no other temporary of the same call
  /// gets its memory (or its address, by which tensors are told apart).
  const at::Tensor& hold(at::Tensor temporary) {
    held_.push_back(std::move(temporary));
    return held_.back();
  }

  /// The whole command, valid as long as the writer.
  std::span<const std::byte> finish();

  /// What finish() has made.
  std::span<const std::byte> command() const { return {command_.data(), command_.size()}; }

  /// Says in the command, also in one that is finished, that its kernel's warnings have been told.
  void drop_warnings() noexcept;

  c10::Device device() const noexcept { return device_; }

  /// A hash of what decides whether a kernel takes the arguments at all: dtypes, dimensions,
  /// strings, flags, and with Detail::kShapes sizes, strides and which tensors are the same.
  /// Numbers and elements are not in it, unless sign() puts them in.
  std::uint64_t signature() const noexcept { return signature_; }
  void sign(std::uint64_t v) noexcept {
    signature_ = (signature_ ^ v) * 0x9E3779B97F4A7C15;
    signature_ ^= signature_ >> 32;
  }

  /// Two tensors of the call, one of them written, are views of one storage.
  bool shares_written_memory() const noexcept { return shares_written_memory_; }
  /// A tensor that is written has elements that share memory, with each other or with those of
  /// another tensor of the call: kernels may refuse that.
  bool written_memory_overlaps() const;

  static constexpr std::size_t kMaxInlineBytes = 32 * 1024;

 private:
  struct StorageEntry {
    const void*
        identity;  // the StorageImpl, so that tensors that share storage do so on the device
    std::uint64_t pointer;
    std::uint64_t nbytes;
    bool written;
  };

  void bytes(const void* data, std::size_t count);
  bool write_known(const at::TensorBase& tensor, Access access);
  void add_tensor(const at::TensorBase& tensor, std::uint32_t storage, std::uint32_t flags);
  std::uint32_t add_storage(const c10::Storage& storage, Access access);
  void add_payload_tensor(const at::TensorBase& cpu_tensor);
  void sign_equal_sizes(at::IntArrayRef sizes);

  const char* op_;
  c10::Device device_;
  Detail detail_;
  bool shares_written_memory_ = false;
  bool overlaps_itself_ = false;
  bool drops_warnings_ = false;
  std::uint64_t signature_ = 0xCBF29CE484222325;
  c10::SmallVector<std::int64_t, 16> sizes_;  // those that have been signed, each once
  c10::SmallVector<StorageEntry, 6> storages_;
  c10::SmallVector<c10::TensorImpl*, 6> tensor_identities_;
  c10::SmallVector<std::size_t, 6> tensor_offsets_;  // of each record in tensors_
  c10::SmallVector<std::byte, 512> tensors_;         // tensor records
  c10::SmallVector<std::byte, 192> values_;          // values and references to tensors, in order
  c10::SmallVector<std::byte, 64> payload_;          // elements of CPU tensors
  c10::SmallVector<at::Tensor, 2> held_;
  c10::SmallVector<std::byte, 1024> command_;
};

/// Reads them back on the device, in the same order. Device tensors come back as CPU tensors over
/// the aperture: one TensorImpl per tensor and one StorageImpl per storage of the call, so that
/// identity and aliasing are kept.
class ArgumentReader {
 public:
  explicit ArgumentReader(std::span<const std::byte> command);

  /// The next argument, a tensor; undefined where an undefined one was written. Valid as long as
  /// the reader.
  at::Tensor& tensor();

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
    const auto count = value<std::uint64_t>();
    return {reinterpret_cast<const T*>(take(count * sizeof(T))), count};
  }

 private:
  const std::byte* take(std::size_t count);

  std::span<const std::byte> command_;
  c10::SmallVector<at::Tensor, 6> tensors_;
  at::Tensor undefined_;
  const std::byte* next_;
  ToldWarningFilter warnings_;
};

/// One tensor of an encoded command, for those who look at commands from outside (tests, tracing).
struct TensorView {
  const void* data;  ///< device pointer of the storage, or a pinned host pointer
  std::size_t nbytes;
  c10::ScalarType dtype;
  bool written;
};
c10::SmallVector<TensorView, 6> tensors_of_command(std::span<const std::byte> command);

/// A copy of a command whose tensors lie in host memory, filled with zeros, or, of integers, with
/// ones: to see whether a kernel takes such arguments. `shrunk`: sizes are small, but those that
/// are equal, 1, or 0 stay so, and what is greater stays greater.
class CommandOnHost {
 public:
  CommandOnHost(std::span<const std::byte> command, bool shrunk, bool ones = false);
  std::span<const std::byte> command() const noexcept { return command_; }

 private:
  std::vector<std::byte> command_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace openreg::ops
