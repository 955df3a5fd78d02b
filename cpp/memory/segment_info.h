#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/block.h"
#include "memory/history.h"

namespace openreg::memory {

/// A block at the time of the snapshot.
struct BlockInfo {
  std::uintptr_t address;
  std::size_t bytes;
  std::size_t requested;  ///< 0 unless it is held or pending
  Block::State state;
  Context context;  ///< of the allocation, if history was recorded
};

/// A segment at the time of the snapshot.
struct SegmentInfo {
  std::uintptr_t address;
  std::size_t bytes;
  const Stream* stream;
  SizeClass size_class;
  PoolId pool;
  bool is_expandable;  ///< memory may be added to it, and parts of it returned
  Context context;     ///< of the allocation that it was mapped for, if history was recorded
  std::vector<BlockInfo> blocks;  ///< in the order of their addresses
};

}  // namespace openreg::memory
