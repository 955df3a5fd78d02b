#pragma once

#include <cstddef>
#include <vector>

#include "memory/block.h"
#include "memory/history.h"

namespace openreg::memory {

/// The blocks of a private pool that the program held at one time. See Note [Checkpoints].
struct Checkpoint {
  struct HeldBlock {
    std::byte* address;
    std::size_t bytes;
    std::size_t requested;
    std::vector<Stream*> users;  ///< other streams that use it, see Heap::record_stream()
    Context context;             ///< of the allocation, if history was recorded
  };

  PoolId pool;
  std::vector<HeldBlock> blocks;  ///< in the order of their addresses
};

}  // namespace openreg::memory
