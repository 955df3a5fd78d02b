#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/block.h"
#include "memory/history.h"

namespace openreg::memory {

/// A block as it was when asked.
struct BlockInfo {
  std::uintptr_t address;
  std::size_t bytes;
  std::size_t requested;  ///< 0 unless it is held or pending
  Block::State state;
  Context context;  ///< of the allocation, where history was recorded
};

/// A segment as it was when asked.
struct SegmentInfo {
  std::uintptr_t address;
  std::size_t bytes;
  const Stream* stream;
  SizeClass size_class;
  PoolId pool;
  Context context;  ///< of the allocation that it was mapped for, where history was recorded
  std::vector<BlockInfo> blocks;  ///< in the order of their addresses
};

}  // namespace openreg::memory
