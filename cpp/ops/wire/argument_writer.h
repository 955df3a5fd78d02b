#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "ops/wire/command_layout.h"
#include "ops/wire/identity_index.h"
#include "ops/wire/number.h"
#include "ops/wire/signature.h"

namespace openreg::ops {

enum class Access : std::uint8_t { kRead, kWrite };

/// How closely two calls must match to be alike. kDtypes: they have the same dtypes, numbers of
/// dimensions and flags. kIntegers: also the same integers. kEqualSizes: also the same pattern of
/// equal sizes.
enum class SignatureLevel : std::uint8_t { kDtypes, kIntegers, kEqualSizes };

/// Which argument of its operator a tensor is, for reports.
struct ArgumentPlace {
  static constexpr std::int16_t kUnknown = -1;  // tensors are in the order of the schema
  static constexpr std::int16_t kResult = -2;   // made for the call
  static constexpr std::int16_t kOut = -3;      // given by the caller
  static constexpr std::int16_t kInput = -4;    // one that the schema does not write
  static constexpr std::int16_t kOutput = -5;   // one that it writes, or a result

  std::int16_t argument = kUnknown;  // its number in the schema, or one of the above
  std::uint16_t element = 0;         // of a list, or among those of the same kind
};

/// Writes a command's arguments as flat bytes, in the order of the calls, together with the words
/// by which calls are compared. See Note [Arguments on the wire] in command_layout.h. Tensors
/// travel as metadata, never as owners: the bytes hold only device pointers, sizes and values, so
/// that a command can be encoded, shown, and run elsewhere. The tensors must outlive the writer;
/// keep_alive() ensures this for a call's temporaries. Used by one thread.
class ArgumentWriter {
 public:
  /// `op`, which must outlive the writer, names the operator in errors. Tensors on a device other
  /// than `device` are refused with the CPU's message, except 0-dim CPU tensors that are only read:
  /// their value is copied.
  ArgumentWriter(const char* op, c10::Device device) : op_(op), device_(device) {}

  /// Writes a device tensor, a 0-dim CPU tensor (its value), or an undefined one.
  void tensor(const at::TensorBase& tensor, Access access = Access::kRead);
  /// Writes a tensor of any openreg device, for copies between devices.
  void tensor_of_any_device(const at::TensorBase& tensor, Access access);
  /// Writes a CPU tensor's elements themselves, contiguous, at most kMaxInlineBytes.
  void inline_tensor(const at::TensorBase& cpu_tensor);
  /// Writes a CPU tensor in pinned memory: the only kind of host pointer that a command may hold.
  /// The caller keeps it alive.
  void pinned_tensor(const at::TensorBase& cpu_tensor, Access access);

  /// What is written next belongs to this argument (ArgumentPlace).
  void at_argument(std::int16_t argument, std::uint16_t element = 0) noexcept {
    place_ = {argument, element};
  }
  /// The argument with which a tensor was first written. `tensor`: its number.
  ArgumentPlace place_of(std::size_t tensor) const noexcept { return tensors_[tensor].place; }
  /// Whether an output that the caller gave is one of the inputs.
  bool is_in_place() const noexcept { return is_in_place_; }

  /// Flags, enumerations, integers, plain floating-point numbers and optionals of them become part
  /// of the signature; other types are only encoded.
  template <class T>
  void value(const T& v) {
    encode(v);
    add_to_signature(v);
  }
  /// Writes a number of which only the kind becomes part of the signature (number.h).
  void number(const c10::Scalar& v);
  /// Makes the kind of a number part of the signature, without encoding the number.
  void add_kind_to_signature(const c10::Scalar& v) { numbers_.emplace_back(v); }
  /// Writes an array; its elements become part of the signature as values do.
  template <class T>
  void array(const T* data, std::size_t count) {
    encode_array(data, count);
    add_signature_word(count);
    for (std::size_t i = 0; i < count; ++i) add_to_signature(data[i]);
  }
  /// Writes a value that only the kernel needs: it is no part of the signature.
  template <class T>
  void encode(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr auto kWords = (sizeof(T) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    const auto at = values_.size();
    values_.resize_for_overwrite(at + kWords);
    if constexpr (sizeof(T) % sizeof(std::uint64_t) != 0)
      values_.back() = 0;  // commands are compared
    std::memcpy(values_.data() + at, &v, sizeof(T));
  }
  /// Adds a word to the signature only.
  void add_signature_word(std::uint64_t word) { words_.push_back(word); }
  /// Adds a value to the signature only, if it is of a type that value() names.
  template <class T>
  void add_to_signature(const T& v) {
    if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T> || std::is_same_v<T, char>) {
      add_signature_word(static_cast<std::uint64_t>(v));
    } else if constexpr (std::is_integral_v<T>) {
      integers_.push_back(static_cast<std::uint64_t>(v));
    } else if constexpr (std::is_floating_point_v<T>) {
      integers_.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(v)));
    }
  }
  template <class T>
  void add_to_signature(const std::optional<T>& v) {
    add_signature_word(v.has_value() ? 1 : 0);
    if (v) add_to_signature(*v);
  }

  /// Keeps a temporary alive until after the launch, so that no other temporary of the same call
  /// gets its memory (or its address, which identifies a tensor).
  const at::Tensor& keep_alive(at::Tensor temporary) {
    held_.push_back(std::move(temporary));
    return held_.back();
  }

  /// The signature of the call: all that has been written so far and determines how the call ends
  /// and which geometry its results have. `whom`: the kernel. Valid until something else is
  /// written.
  SignatureView signature(const void* whom);
  /// A signature with less detail, which is the same for calls that are alike by `level`; `words`
  /// receives its words. May be called before or after the other overload.
  SignatureView signature(const void* whom, SignatureLevel level,
                          c10::SmallVectorImpl<std::uint64_t>& words);

  /// Returns the command, valid until the next finish() or the end of the writer. Throws c10::Error
  /// if the storage of a tensor is too short for it.
  std::span<const std::byte> finish();

  /// Notes in the command, even if it is finished, that its kernel's warnings have been reported.
  void drop_warnings() noexcept;

  const char* op() const noexcept { return op_; }
  c10::Device device() const noexcept { return device_; }
  /// The number of the tensors written so far, each counted once, and their sizes.
  std::size_t tensor_count() const noexcept { return tensors_.size(); }
  at::IntArrayRef sizes(std::size_t tensor) const noexcept {
    return tensors_[tensor].identity->sizes();
  }
  /// Bytes of all elements of these tensors.
  std::size_t bytes_touched() const noexcept { return bytes_touched_; }

  /// Whether two tensors of the call, one of them written, are views of one storage.
  bool shares_written_memory() const noexcept { return shares_written_memory_; }
  /// Whether a written tensor has elements that share memory, with each other or with those of
  /// another tensor of the call: kernels may refuse that.
  bool written_memory_overlaps() const;

  static constexpr std::size_t kMaxInlineBytes = 32 * 1024;

 private:
  struct StorageEntry {
    const void* identity;  // the StorageImpl, so that tensors that share it do so on the device
    StorageRecord record;
    bool written;
    std::uint32_t tensors = 1;  // that lie in it
  };
  struct TensorEntry {
    c10::TensorImpl* identity;
    TensorRecord record;
    std::size_t end;  // of the bytes of its storage that it uses
    ArgumentPlace place;
  };

  template <class T>
  void encode_array(const T* data, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    encode<std::uint64_t>(count);
    const auto bytes = count * sizeof(T);
    const auto at = values_.size();
    values_.resize_for_overwrite(at + (bytes + 7) / 8);
    if (bytes != 0) std::memcpy(values_.data() + at, data, bytes);
  }
  bool write_known(const at::TensorBase& tensor, Access access);
  void add_tensor(const at::TensorBase& tensor, std::uint32_t storage, std::uint8_t flags);
  std::uint32_t add_storage(const c10::Storage& storage, Access access);
  void add_payload_tensor(const at::TensorBase& cpu_tensor);
  void add_number_to_signature(const at::TensorBase& cpu_tensor);
  void add_numbers_to_signature();
  TensorShape& shape(const TensorEntry& tensor) {
    return reinterpret_cast<TensorShape&>(words_[tensor.record.word]);
  }
  const TensorShape& shape(const TensorEntry& tensor) const {
    return reinterpret_cast<const TensorShape&>(words_[tensor.record.word]);
  }

  const char* op_;
  c10::Device device_;
  std::uint16_t signature_ = 0;
  ArgumentPlace place_;
  bool is_in_place_ = false;
  bool shares_written_memory_ = false;
  bool overlaps_itself_ = false;
  bool drops_warnings_ = false;
  bool has_numbers_ = false;
  std::size_t bytes_touched_ = 0;
  c10::SmallVector<StorageEntry, 5> storages_;
  c10::SmallVector<TensorEntry, 5> tensors_;
  IdentityIndex storage_index_;
  IdentityIndex tensor_index_;
  c10::SmallVector<std::uint64_t, 64> words_;     // shapes of tensors, and flags
  c10::SmallVector<std::uint64_t, 16> integers_;  // and numbers that count by their value
  c10::SmallVector<Number, 3> numbers_;
  c10::SmallVector<std::uint64_t, 24> values_;  // and references to tensors, in order
  c10::SmallVector<std::byte, 32> payload_;     // elements of CPU tensors
  c10::SmallVector<at::Tensor, 1> held_;
  c10::SmallVector<std::byte, 1024> command_;
};

}  // namespace openreg::ops
