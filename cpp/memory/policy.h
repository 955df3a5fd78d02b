#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/round_up.h"
#include "memory/block.h"

namespace openreg::memory {

/// How a heap obtains memory from its device, and returns it.
enum class Segments : std::uint8_t {
  kGrowing,  ///< as little as possible: Note [Segments grow] in heap_segments.cpp
  kCuda,     ///< as CUDA's allocator does, to the byte: Note [CUDA's segments] in cuda_segments.cpp
  kCudaExpandable,  ///< the same with PyTorch's setting expandable_segments
};

/// How a heap rounds, splits and keeps memory. PyTorch documents each setting at
/// PYTORCH_ALLOC_CONF.
struct Policy {
  Segments segments = Segments::kGrowing;
  /// With CUDA's segments: the size of those for blocks below 10 MiB, and of pages for large
  /// blocks.
  std::size_t large_segment_bytes = std::size_t{20} << 20;
  /// Blocks of this size and more are not split, and not used for smaller requests.
  std::size_t max_split_bytes = std::numeric_limits<std::size_t>::max();
  /// By how much a block that is not split may exceed the request that it is used for.
  std::size_t max_non_split_rounding = std::size_t{20} << 20;
  /// The part of the limit above which unused segments are returned to the device, the oldest
  /// first; 0: never.
  double garbage_collection_threshold = 0;
  /// The number of steps between powers of two to which sizes are rounded up; 0 and 1: sizes are
  /// rounded to kBlockBytes only. The first entry is for sizes below 2 MiB, each following one for
  /// sizes up to twice the previous bound, the last for all larger sizes.
  std::array<std::size_t, 16> power2_divisions{};

  bool is_oversize(std::size_t bytes) const { return bytes >= max_split_bytes; }
  bool is_cudas() const { return segments != Segments::kGrowing; }

  /// The size of a new segment for a block of `rounded` bytes. CUDA's allocator compares it with
  /// its limit for expandable segments, too.
  std::size_t segment_bytes(std::size_t rounded) const {
    constexpr std::size_t kOwnSegment = std::size_t{10} << 20;
    if (is_cudas() && rounded > kSmallBytes && rounded < kOwnSegment) return large_segment_bytes;
    return round_up(rounded, kSegmentBytes);
  }

  /// The size of a block for `bytes` (> 0, and not so large that rounding overflows).
  std::size_t round(std::size_t bytes) const {
    const std::size_t divisions = power2_divisions[interval(bytes)];
    if (divisions > 1 && bytes > kBlockBytes * divisions) {
      const std::size_t step = std::bit_floor(bytes) / std::bit_floor(divisions);
      return (bytes + step - 1) / step * step;
    }
    return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }

 private:
  std::size_t interval(std::size_t bytes) const {
    const auto doublings = static_cast<std::size_t>(std::bit_width(bytes >> 21));
    return std::min(doublings, power2_divisions.size() - 1);
  }
};

}  // namespace openreg::memory
