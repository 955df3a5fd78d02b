// Heap: checkpoints of private pools.
#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.h"
#include "memory/heap.h"
#include "memory/heap_blocks.h"

namespace openreg::memory {

// Note [Checkpoints]
// A replay of a graph writes its results to the memory that they had in the capture, and the heap
// does not notice: there the blocks have been free since the results of the capture died. Before
// another graph is captured in the same pool while such results are in use, the program has the
// heap hold their blocks again, by a checkpoint from the end of the first capture. A pool in use
// returns no memory to the device, so it still has theirs.

namespace {

[[noreturn]] void throw_unlike_checkpoint(const std::byte* address, const char* what) {
  throw Error("openreg: cannot restore the checkpoint of the memory pool: the block at " +
              std::to_string(reinterpret_cast<std::uintptr_t>(address)) + what);
}

bool has(const Checkpoint& checkpoint, const Block& block) {
  const auto found = std::ranges::lower_bound(checkpoint.blocks, block.address, {},
                                              &Checkpoint::HeldBlock::address);
  return found != checkpoint.blocks.end() && found->address == block.address &&
         found->bytes == block.bytes;
}

}  // namespace

template <class F>
void Heap::for_each_held(PoolId pool, F f) const {
  for (const auto& [address, segment] : segments_) {
    if (segment.pool->id() != pool) continue;
    for (const Block* block = segment.first; block != nullptr; block = block->right) {
      if (block->state == Block::State::kHeld) f(*block);
    }
  }
}

Checkpoint Heap::checkpoint(PoolId pool) const {
  Checkpoint result{.pool = pool, .blocks = {}};
  for_each_held(pool, [&](const Block& block) {
    result.blocks.push_back(
        {block.address, block.bytes, block.requested, block.users, block.context});
  });
  return result;
}

void Heap::restore_checkpoint(const Checkpoint& checkpoint) {
  const auto& pool = existing(checkpoint.pool);
  for_each_held(checkpoint.pool, [&](const Block& block) {
    if (!has(checkpoint, block))
      throw_unlike_checkpoint(block.address, " has been allocated since");
  });
  std::vector<const Checkpoint::HeldBlock*> freed;
  for (const auto& block : checkpoint.blocks) {
    if (held_.find(block.address) != nullptr) continue;
    if (free_block_around(pool, block) == nullptr)
      throw_unlike_checkpoint(block.address, " is not free");
    freed.push_back(&block);
  }
  for (const auto* block : freed) {
    InactiveChange change;
    auto& part = take_part(*free_block_around(pool, *block), block->address, block->bytes, change);
    part.is_oversize =
        part.segment->is_cudas() ? policy_.is_oversize(part.bytes) : part.segment->is_oversize;
    hold(part, part.bytes, block->requested, false, change, block->context);
    part.users = block->users;
  }
}

// The free block of the pool that has all bytes of `wanted`; nullptr if there is none.
Block* Heap::free_block_around(const Pool& pool, const Checkpoint::HeldBlock& wanted) {
  const auto after = segments_.upper_bound(wanted.address);
  if (after == segments_.begin()) return nullptr;
  const auto& segment = std::prev(after)->second;
  if (segment.pool != &pool) return nullptr;
  Block* block = segment.first;
  while (block != nullptr && block->end() <= wanted.address) block = block->right;
  const bool fits = block != nullptr && block->state == Block::State::kFree &&
                    wanted.address + wanted.bytes <= block->end();
  return fits ? block : nullptr;
}

}  // namespace openreg::memory
