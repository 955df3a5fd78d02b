#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/round_up.h"
#include "memory/statistics.h"

namespace openreg {
class Stream;
}

namespace openreg::memory {

class FreeList;
class Pool;
struct Segment;

/// Where and why memory was allocated, to be reported later. Opaque: only the layer that makes it
/// knows its type.
using Context = std::shared_ptr<void>;

inline constexpr std::size_t kBlockBytes = 512;  ///< sizes and addresses are multiples of it
inline constexpr std::size_t kSmallBytes = std::size_t{1} << 20;    ///< the largest small block
inline constexpr std::size_t kSegmentBytes = std::size_t{2} << 20;  ///< segments' granularity

constexpr SizeClass class_of(std::size_t rounded) {
  return rounded <= kSmallBytes ? SizeClass::kSmall : SizeClass::kLarge;
}

constexpr std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

/// A piece of a segment: one tensor's memory, or free. The blocks of a segment are linked in the
/// order of their addresses and leave no gap.
struct Block {
  enum class State : std::uint8_t {
    kFree,      ///< in a free list
    kHeld,      ///< in use by the program
    kPending,   ///< freed by the program, but other streams still use it
    kDetached,  ///< on its way back to the device
  };

  std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  Segment* segment = nullptr;
  Block* left = nullptr;  ///< neighbours in the segment
  Block* right = nullptr;
  Block* previous = nullptr;  ///< neighbours in a free list's bin
  Block* next = nullptr;
  State state = State::kFree;
  bool is_oversize = false;      ///< held, and counted as oversize
  std::uint32_t events = 0;      ///< recorded on other streams, not completed yet
  std::uint64_t freed_at = 0;    ///< the heap's time when it became free, see Heap::clock_
  std::vector<Stream*> users{};  ///< other streams that use it, see Heap::record_stream()
  Context context{};             ///< of the allocation, if history is recorded

  std::byte* end() const { return address + bytes; }
  bool is_part() const { return left != nullptr || right != nullptr; }
};

/// Reserved addresses for the segments of one stream and size class, which memory is mapped in by
/// pages: what PyTorch calls an expandable segment.
struct AddressRange {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  std::size_t page = 0;      ///< bytes; pages begin at multiples of it after `begin`
  std::uint64_t number = 0;  ///< see Segment
};

/// A range of addresses with memory, without gaps, for the work of one stream.
struct Segment {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  Stream* stream = nullptr;  ///< whose work it is for
  Pool* pool = nullptr;
  FreeList* free_blocks = nullptr;  ///< its free blocks
  SizeClass size_class = SizeClass::kSmall;
  bool is_oversize = false;  ///< see Policy::max_split_bytes; unless it is CUDA's: one block
  std::uint64_t number = 0;  ///< for CUDA's segments: in the order of their creation, from 1
  const AddressRange* range = nullptr;  ///< for CUDA's segments: in which it lies, if expandable
  Block* first = nullptr;
  Block* last = nullptr;
  Context context{};  ///< of the allocation that it was mapped for, if history is recorded

  std::byte* end() const { return address + bytes; }
  bool is_cudas() const { return number != 0; }  ///< see Note [CUDA's segments]
  bool is_expandable() const { return range != nullptr; }
};

}  // namespace openreg::memory
