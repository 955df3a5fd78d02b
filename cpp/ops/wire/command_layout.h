#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/trace.h"

namespace openreg::ops {

// Note [Arguments on the wire]
//
//   CommandHeader | storages | tensors | words | values | payload
//
// A tensor refers to its storage by number, and to its shape by a position among the words. Calls
// are compared by their words (signature.h); besides shapes the words hold flags, which the reader
// skips. The value area holds, in the order of the operator's arguments, plain values, arrays, and
// references to tensors by number (kUndefined: none). Everything begins at a multiple of 8, the
// payload (elements of small CPU tensors) at a multiple of 16. A command owns nothing: memory that
// the host frees after the launch may be reused by later commands of the same stream, which run
// after this one.

struct CommandHeader {
  std::uint32_t storages;
  std::uint32_t tensors;
  std::uint32_t words_at;
  std::uint32_t values_at;
  std::uint32_t payload_at;
  bool flush_denormals;     // the launching thread's mode, which affects results
  bool drops_warnings;      // the call has reported them
  std::uint16_t signature;  // of the call, the lowest bits of its hash; 0 if it was not asked for
};

struct StorageRecord {
  std::uint64_t pointer;  // device pointer; pinned host pointer; offset in the payload
  std::uint64_t nbytes;
};

struct TensorRecord {
  std::int64_t storage_offset;
  std::uint32_t storage;
  std::uint32_t word;  // where its shape begins: a TensorShape, then sizes, then strides
};

/// The number of a tensor that is not defined.
inline constexpr std::int32_t kUndefined = -1;

enum TensorFlag : std::uint8_t {
  kWritten = 1,
  kConj = 2,
  kNeg = 4,
  kWrappedNumber = 8,
  kPayload = 16,  // the storage's pointer is an offset in the payload
  kPinned = 32,   // the storage's pointer is a host pointer
};

/// The first word of a tensor's shape.
struct TensorShape {
  std::uint8_t dtype;
  std::uint8_t flags;
  std::uint16_t dim;
  std::uint32_t storage;

  c10::ScalarType type() const noexcept { return static_cast<c10::ScalarType>(dtype); }
};
static_assert(sizeof(TensorShape) == sizeof(std::uint64_t));

/// A view of a command as ArgumentWriter has laid it out.
class CommandView {
 public:
  explicit CommandView(std::span<const std::byte> command) : begin_(command.data()) {}

  const CommandHeader& header() const { return *at<CommandHeader>(0); }
  const StorageRecord* storages() const { return at<StorageRecord>(sizeof(CommandHeader)); }
  std::span<const TensorRecord> tensors() const {
    const auto begin = sizeof(CommandHeader) + header().storages * sizeof(StorageRecord);
    return {at<TensorRecord>(begin), header().tensors};
  }
  const std::byte* values() const { return begin_ + header().values_at; }
  const std::byte* payload() const { return begin_ + header().payload_at; }

  const TensorShape& shape(const TensorRecord& tensor) const {
    return *reinterpret_cast<const TensorShape*>(words() + tensor.word);
  }
  const std::int64_t* sizes(const TensorRecord& tensor) const { return words() + tensor.word + 1; }
  const std::int64_t* strides(const TensorRecord& tensor) const {
    return sizes(tensor) + shape(tensor).dim;
  }
  std::size_t numel(const TensorRecord& tensor) const {
    std::size_t elements = 1;
    for (std::size_t i = 0; i < shape(tensor).dim; ++i)
      elements *= static_cast<std::size_t>(sizes(tensor)[i]);
    return elements;
  }
  MemoryKind place(const TensorRecord& tensor) const {
    const auto flags = shape(tensor).flags;
    return flags & kPayload  ? MemoryKind::kPageable
           : flags & kPinned ? MemoryKind::kPinned
                             : MemoryKind::kDevice;
  }
  const StorageRecord& storage(const TensorRecord& tensor) const {
    return storages()[tensor.storage];
  }

 private:
  template <class T>
  const T* at(std::size_t offset) const {
    return reinterpret_cast<const T*>(begin_ + offset);
  }
  const std::int64_t* words() const { return at<std::int64_t>(header().words_at); }

  const std::byte* begin_;
};

}  // namespace openreg::ops
