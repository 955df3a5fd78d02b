// Heap: memory from the device and back to the device.
#include <algorithm>
#include <functional>

#include "memory/heap.h"
#include "memory/heap_blocks.h"

namespace openreg::memory {

// Note [Segments grow]
// A stream's blocks of one size class lie in one segment as far as possible. If nothing in it fits,
// the segment is extended after its last block by what is missing. So all free memory in it can
// merge, whatever sizes were requested; with a segment for each large block, what a training loop
// has cached for smaller batches is useless for a larger one (peak reserved memory of recorded
// loops is 1.3 to 1.7 times the peak in use that way, and 1.03 to 1.2 times this way). For the same
// reason memory is returned in pieces: all whole multiples of kSegmentBytes that are free, not only
// segments that are free as a whole.

namespace {

// What can be returned to the device of a free block.
struct Returnable {
  std::size_t before = 0;  // bytes that stay, at its beginning
  std::size_t bytes = 0;
};

// The whole multiples of `page` in a block, counted from `origin`.
Returnable whole_pages(const Block& block, std::uintptr_t origin, std::size_t page) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block.address) - origin;
  const std::size_t before = round_up(begin, page) - begin;
  const std::size_t after = (begin + block.bytes) % page;
  return {before, block.bytes < before + after ? 0 : block.bytes - before - after};
}

Returnable returnable(const Block& block) {
  const auto& segment = *block.segment;
  if (!segment.is_cudas()) return whole_pages(block, 0, kSegmentBytes);
  if (const auto* range = segment.range)
    return whole_pages(block, reinterpret_cast<std::uintptr_t>(range->begin), range->page);
  return {0, block.is_part() ? 0 : block.bytes};
}

// By how much a segment must grow so that its last block can have `rounded` bytes, if no block in
// it has them yet.
std::size_t bytes_missing(const Segment& segment, std::size_t rounded) {
  const Block& last = *segment.last;
  return round_up(rounded - (last.state == Block::State::kFree ? last.bytes : 0), kSegmentBytes);
}

}  // namespace

bool Heap::within_limit(std::size_t bytes) const {
  const auto reserved = static_cast<std::size_t>(statistics_.reserved_bytes.current());
  return reserved <= limit_ && bytes <= limit_ - reserved;
}

// The stream's newest segment, if a block of this size may lie in a segment that grows.
Segment* Heap::extensible_segment(Pool& pool, std::size_t rounded, Stream& stream) {
  if (pool.no_split || policy_.is_oversize(round_up(rounded, kSegmentBytes))) return nullptr;
  return pool.share(stream, class_of(rounded)).growing;
}

std::size_t Heap::bytes_of_segment(std::size_t bytes) const {
  return policy_.segment_bytes(policy_.round(bytes));
}

std::size_t Heap::bytes_to_map(std::size_t bytes, Stream& stream) {
  const std::size_t rounded = policy_.round(bytes);
  if (policy_.is_cudas()) return cudas_bytes_to_map(route(stream), rounded, stream);
  const auto* segment = extensible_segment(route(stream), rounded, stream);
  if (segment == nullptr) return round_up(rounded, kSegmentBytes);
  return bytes_missing(*segment, rounded);
}

// A free block of at least `rounded` bytes at the end of the stream's newest segment, in no list;
// nullptr if it cannot be extended.
Block* Heap::extend_segment(Pool& pool, std::size_t rounded, Stream& stream, InactiveChange& change,
                            const Context& context) {
  auto* segment = extensible_segment(pool, rounded, stream);
  if (segment == nullptr) return nullptr;
  Block* last = segment->last;
  const bool last_is_free = last->state == Block::State::kFree;
  const std::size_t bytes = bytes_missing(*segment, rounded);
  if (!within_limit(bytes) || !backing_.extend(segment->end(), bytes)) return nullptr;

  history_.record(Action::kSegmentMap, segment->end(), bytes, &stream, pool.id(), context);
  segment->bytes += bytes;
  count_mapped(*segment, bytes);
  if (last_is_free) {
    change.add(*last, -1);
    remove_free(*last);
    last->bytes += bytes;
    return last;
  }
  auto& added = new_block();
  added.address = last->end();
  added.bytes = bytes;
  added.segment = segment;
  added.left = last;
  last->right = &added;
  segment->last = &added;
  return &added;
}

// The only block, in no list, of a new segment; nullptr if the device has no room.
Block* Heap::map_segment(Pool& pool, std::size_t rounded, Stream& stream, const Context& context) {
  const std::size_t bytes = policy_.segment_bytes(rounded);
  if (!within_limit(bytes)) return nullptr;
  void* const memory = backing_.map(bytes);
  if (memory == nullptr) return nullptr;
  auto& segment = add_segment(pool, class_of(rounded), stream, memory, bytes, context);
  auto& share = pool.share(stream, segment.size_class);
  segment.is_oversize = policy_.is_oversize(bytes);
  if (policy_.is_cudas()) {
    segment.number = ++cuda_segments_;
  } else if (segment.is_oversize) {
    segment.free_blocks = &share.oversize;
  } else if (!pool.no_split) {
    share.growing = &segment;
  }
  statistics_.segment.add(segment.size_class, 1);
  if (segment.is_oversize) statistics_.oversize_segments.add(segment.size_class, 1);
  count_mapped(segment, bytes);
  history_.record(Action::kSegmentAlloc, memory, bytes, &stream, pool.id(), context);
  return segment.first;
}

// A segment of one block, which is in no list.
Segment& Heap::add_segment(Pool& pool, SizeClass size_class, Stream& stream, void* memory,
                           std::size_t bytes, const Context& context) {
  if (!held_.covers_something()) {
    const auto [begin, size] = backing_.addresses();
    held_.cover(begin, size);
  }
  auto& block = new_block();
  auto& segment = segments_[static_cast<std::byte*>(memory)];
  segment = {.address = static_cast<std::byte*>(memory),
             .bytes = bytes,
             .stream = &stream,
             .pool = &pool,
             .free_blocks = &pool.share(stream, size_class).free,
             .size_class = size_class,
             .first = &block,
             .last = &block,
             .context = history_.options().blocks ? context : nullptr};
  block.address = segment.address;
  block.bytes = bytes;
  block.segment = &segment;
  ++pool.segments;
  return segment;
}

void Heap::count_mapped(const Segment& segment, std::size_t bytes) {
  ++statistics_.device_maps;
  statistics_.reserved_bytes.add(segment.size_class, signed_bytes(bytes));
  if (!segment.pool->is_default())
    private_bytes_[segment.pool->id()].add(segment.size_class, signed_bytes(bytes));
}

void Heap::count_unmapped(const Segment& segment, std::size_t bytes) {
  ++statistics_.device_unmaps;
  statistics_.reserved_bytes.remove(segment.size_class, signed_bytes(bytes));
  if (!segment.pool->is_default())
    private_bytes_[segment.pool->id()].remove(segment.size_class, signed_bytes(bytes));
}

// --- Returning memory ---

// Detaches the free blocks that `choose` adds to the vector it is passed.
template <class Choose>
Heap::Pieces Heap::detach(Choose choose) {
  std::vector<Block*> blocks;
  choose(blocks);
  Pieces pieces;
  for (Block* block : blocks) {
    if (Block* piece = detach_part(*block)) pieces.push_back(piece);
  }
  return pieces;
}

// What can be returned of a free block, as a separate block; nullptr if nothing can.
Block* Heap::detach_part(Block& block) {
  const auto [before, bytes] = returnable(block);
  if (bytes == 0) return nullptr;
  InactiveChange change;
  auto& piece = take_part(block, block.address + before, bytes, change);
  piece.state = Block::State::kDetached;
  apply(*piece.segment, change);
  return &piece;
}

// The free blocks of the default pool and of pools that the program no longer uses; with an id,
// only of that pool, if it is no longer used.
template <class F>
void Heap::for_each_unused(PoolId id, F f) const {
  if (id == PoolId{}) default_pool_.for_each_free(f);
  for (const auto& [pool_id, pool] : private_pools_) {
    if (pool.uses == 0 && (id == PoolId{} || id == pool_id)) pool.for_each_free(f);
  }
}

Heap::Pieces Heap::detach_unused(PoolId id) {
  return detach([&](std::vector<Block*>& blocks) {
    for_each_unused(id, [&](Block& block) { blocks.push_back(&block); });
  });
}

std::size_t Heap::unused_bytes(bool of_awaited) const {
  const auto awaited = statistics_.active_bytes.current() - statistics_.allocated_bytes.current();
  auto bytes = of_awaited ? static_cast<std::size_t>(awaited) : 0;
  for_each_unused({}, [&](const Block& block) { bytes += returnable(block).bytes; });
  return bytes;
}

Heap::Pieces Heap::detach_oversize(std::size_t bytes, Stream& stream) {
  const std::size_t rounded = policy_.round(bytes);
  if (policy_.is_cudas()) {
    return detach([&](auto& chosen) { choose_oversize_as_cuda(rounded, stream, chosen); });
  }
  if (!policy_.is_oversize(round_up(rounded, kSegmentBytes))) return {};
  return detach([&](std::vector<Block*>& chosen) {
    std::vector<Block*> largest_first;
    route(stream).for_each_free([&](Block& block) {
      if (block.segment->stream == &stream && block.segment->is_oversize)
        largest_first.push_back(&block);
    });
    std::ranges::sort(largest_first, std::ranges::greater(), &Block::bytes);
    std::size_t room = 0;
    for (Block* block : largest_first) {
      if (room >= rounded && block->bytes < rounded) break;
      if (block->bytes >= rounded) {  // one is enough: the smallest that is large enough
        chosen.clear();
        room = 0;
      }
      chosen.push_back(block);
      room += block->bytes;
    }
    if (room < rounded) chosen.clear();
  });
}

Heap::Pieces Heap::detach_oldest() {
  if (policy_.garbage_collection_threshold <= 0) return {};
  if (policy_.is_cudas()) return detach([&](auto& chosen) { choose_oldest_as_cuda(chosen); });
  // In floating point: without a limit the threshold exceeds the range of integers.
  const double threshold = policy_.garbage_collection_threshold * static_cast<double>(limit_);
  double excess = static_cast<double>(statistics_.reserved_bytes.current()) - threshold;
  if (excess <= 0) return {};
  return detach([&](std::vector<Block*>& chosen) {
    std::vector<Block*> oldest_first;
    default_pool_.for_each_free([&](Block& block) {
      if (returnable(block).bytes > 0) oldest_first.push_back(&block);
    });
    std::ranges::sort(oldest_first, {}, &Block::freed_at);
    for (auto it = oldest_first.begin(); it != oldest_first.end() && excess > 0; ++it) {
      chosen.push_back(*it);
      excess -= static_cast<double>(returnable(**it).bytes);
    }
  });
}

void Heap::release(const Pieces& pieces) {
  for (auto* piece : pieces) {
    auto& segment = *piece->segment;
    auto& pool = *segment.pool;
    std::byte* const address = piece->address;
    const std::size_t bytes = piece->bytes;
    const bool is_part = piece->is_part() || segment.is_expandable();
    record(is_part ? Action::kSegmentUnmap : Action::kSegmentFree, *piece, {});
    count_unmapped(segment, bytes);
    auto& share = pool.share(*segment.stream, segment.size_class);
    const auto* const range = segment.range;
    cut_out(*piece);
    backing_.unmap(address, bytes);
    if (range != nullptr) forget_if_empty(share, range);
    forget_if_given_up(pool);
  }
}

// Cuts a detached piece out of its segment: the segment ends there, and another one begins after
// it.
void Heap::cut_out(Block& piece) {
  auto& segment = *piece.segment;
  auto& growing = segment.pool->share(*segment.stream, segment.size_class).growing;
  Block* const left = piece.left;
  Block* const right = piece.right;
  // A block that is now alone in its segment no longer counts as a part of one.
  InactiveChange change;
  for (Block* neighbour : {left, right}) {
    if (neighbour != nullptr && neighbour->state == Block::State::kFree) change.add(*neighbour, -1);
  }
  if (left != nullptr) left->right = nullptr;
  if (right != nullptr) right->left = nullptr;
  for (Block* neighbour : {left, right}) {
    if (neighbour != nullptr && neighbour->state == Block::State::kFree) change.add(*neighbour, +1);
  }
  apply(segment, change);

  Segment rest = segment;
  if (right != nullptr) {
    rest.address = piece.end();
    rest.bytes = static_cast<std::size_t>(segment.end() - rest.address);
    rest.first = right;
  }
  const bool was_growing = growing == &segment;
  if (left != nullptr) {
    segment.bytes = static_cast<std::size_t>(piece.address - segment.address);
    segment.last = left;
  } else {
    if (was_growing) growing = nullptr;
    if (segment.is_oversize) statistics_.oversize_segments.remove(segment.size_class, 1);
    if (!segment.is_expandable()) statistics_.segment.remove(segment.size_class, 1);
    --rest.pool->segments;
    segments_.erase(segment.address);
  }
  if (right != nullptr) {
    auto& after = segments_[rest.address] = rest;
    for (Block* block = right; block != nullptr; block = block->right) block->segment = &after;
    if (!after.is_expandable()) statistics_.segment.add(after.size_class, 1);
    ++after.pool->segments;
    if (was_growing) growing = &after;
  }
  delete_block(piece);
}

std::vector<SegmentInfo> Heap::segments(const PoolId* pool) const {
  std::vector<SegmentInfo> result;
  for (const auto& [address, segment] : segments_) {
    if (pool != nullptr && segment.pool->id() != *pool) continue;
    auto& info = result.emplace_back(
        SegmentInfo{.address = reinterpret_cast<std::uintptr_t>(address),
                    .bytes = segment.bytes,
                    .stream = segment.stream,
                    .size_class = segment.size_class,
                    .pool = segment.pool->id(),
                    .is_expandable = !segment.is_cudas() || segment.is_expandable(),
                    .context = segment.context,
                    .blocks = {}});
    for (const Block* block = segment.first; block != nullptr; block = block->right) {
      info.blocks.push_back({reinterpret_cast<std::uintptr_t>(block->address), block->bytes,
                             block->requested, block->state, block->context});
    }
  }
  return result;
}

}  // namespace openreg::memory
