// Heap: the rules of CUDA's caching allocator.
#include <algorithm>
#include <iterator>
#include <vector>

#include "memory/heap.h"
#include "memory/heap_blocks.h"

namespace openreg::memory {

// Note [CUDA's segments]
// With these rules a heap reserves and allocates the same numbers of bytes as PyTorch's allocator
// for CUDA (c10/cuda/CUDACachingAllocator.cpp, its native backend, as of 2.13) for the same calls,
// and runs out of memory in the same one. Each is a fact of that allocator, whether it is good or
// not:
// - A segment has 2 MiB for small blocks, 20 MiB (large_segment_size_mb) for those of up to 10 MiB,
//   and otherwise a multiple of 2 MiB. It never grows, and is returned only as a whole.
// - A small block is split if 512 bytes remain, a large one if more than 1 MiB remains and the
//   request is below max_split_size. What is not split off counts as allocated.
// - A request gets the smallest free block of its stream and class, of those the one of the oldest
//   segment, and of those the lowest. If the guards of max_split_size reject that block, no other
//   one is tried.
// - With expandable_segments, a segment is a range of addresses for one stream and class, in which
//   memory is mapped at the lowest place by pages of 2 MiB for small and 20 MiB for large blocks.
//   Blocks of both classes are split if 512 bytes remain. Its free pages can be returned. It is no
//   segment in the statistics, and its free blocks are not inactive ones.
// - Memory that other streams give up while the allocator waits for room is returned or stays in
//   the cache; the allocation that waits does not look there again.
//
// The pieces of a range that have memory are each a Segment, and what is between them is a gap.

namespace {

constexpr std::size_t kLeastSplitOffLarge = kSmallBytes + 1;

std::size_t bytes_between(const std::byte* from, const std::byte* to) {
  return static_cast<std::size_t>(to - from);
}

}  // namespace

// --- Blocks of the cache ---

// What is split off depends on the present setting, not on the block's segment.
bool Heap::cuda_splits(const Block& block, std::size_t rounded, bool expandable) const {
  if (block.segment->pool->no_split) return false;
  const std::size_t rest = block.bytes - rounded;
  if (block.segment->size_class == SizeClass::kSmall || expandable) return rest >= kBlockBytes;
  return !policy_.is_oversize(rounded) && rest >= kLeastSplitOffLarge;
}

void* Heap::take_as_cuda(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                         bool expandable, const Context& context) {
  const auto size_class = class_of(rounded);
  const bool may_collect = limit_is_programs_ && policy_.garbage_collection_threshold > 0;
  if (may_collect && pool.is_default() && size_class == SizeClass::kLarge) ++clock_;
  Block* const block = cudas_best_fit(pool.share(stream, size_class).free, rounded, expandable);
  if (block == nullptr) return nullptr;
  const bool splits = cuda_splits(*block, rounded, expandable);
  block->is_oversize = policy_.is_oversize(splits ? rounded : block->bytes);
  return take(*block, rounded, bytes, splits, context);
}

Block* Heap::cudas_best_fit(const FreeList& blocks, std::size_t rounded, bool expandable) const {
  Block* block = blocks.best_fit(rounded);
  if (block == nullptr) return nullptr;
  if (expandable) {
    // A block before a gap counts as large as it can become. The search ends at the first block
    // that is not smaller than the one before it.
    while (block->segment->is_expandable()) {
      Block* const next = blocks.after(*block);
      if (next == nullptr || size_with_gap(*next) >= size_with_gap(*block)) break;
      block = next;
    }
  } else {
    while (block != nullptr && block->segment->is_expandable()) block = blocks.after(*block);
    if (block == nullptr) return nullptr;
  }
  const bool fits = policy_.is_oversize(rounded)
                        ? block->bytes - rounded < policy_.max_non_split_rounding
                        : !policy_.is_oversize(block->bytes);
  return fits ? block : nullptr;
}

std::size_t Heap::size_with_gap(const Block& block) const {
  const auto* const range = block.segment->range;
  if (range == nullptr || block.right != nullptr) return block.bytes;
  return block.bytes + bytes_between(block.end(), next_mapped(*range, block.end()));
}

// --- Memory from the device ---

void* Heap::map_as_cuda(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                        const Context& context) {
  const bool expandable = policy_.segments == Segments::kCudaExpandable;
  if (limit_is_programs_ && !within_limit(policy_.segment_bytes(rounded))) return nullptr;
  Block* const block = expandable ? map_pages(pool, rounded, stream, context)
                                  : map_segment(pool, rounded, stream, context);
  if (block == nullptr) return nullptr;
  const bool splits = cuda_splits(*block, rounded, expandable);
  block->is_oversize = policy_.is_oversize(splits ? rounded : block->bytes);
  return hold(*block, rounded, bytes, splits, {}, context);
}

// A free block of at least `rounded` bytes, in no list, at the lowest address where pages can be
// mapped for it; nullptr if the device has no room. Pages that were mapped before it had none stay.
Block* Heap::map_pages(Pool& pool, std::size_t rounded, Stream& stream, const Context& context) {
  const auto size_class = class_of(rounded);
  const bool is_small = size_class == SizeClass::kSmall;
  const std::size_t page = is_small ? kSegmentBytes : policy_.large_segment_bytes;
  auto& share = pool.share(stream, size_class);
  auto [range, at] = lowest_gap(share, rounded);
  if (range == nullptr) {
    range = reserve_range(share, page, rounded);
    if (range == nullptr) return nullptr;
    at = range->begin;
  }
  Block* block = free_block_before(*range, at);
  while (block == nullptr || block->bytes < rounded) {
    const std::size_t missing = rounded - (block == nullptr ? 0 : block->bytes);
    const std::size_t gap = bytes_between(at, next_mapped(*range, at));
    const std::size_t bytes = std::min(round_up(missing, range->page), gap);
    if (bytes == 0 || !backing_.map_at(at, bytes)) {
      forget_if_empty(share, range);
      return nullptr;
    }
    block = &add_pages(pool, size_class, stream, *range, at, bytes, context);
    at = block->end();
  }
  remove_free(*block);
  return block;
}

// Makes memory that has been mapped in a gap part of the segments next to it. Returns the free
// block, in the list, that has it.
Block& Heap::add_pages(Pool& pool, SizeClass size_class, Stream& stream, const AddressRange& range,
                       std::byte* address, std::size_t bytes, const Context& context) {
  auto* segment = &add_segment(pool, size_class, stream, address, bytes, context);
  segment->range = &range;
  segment->number = range.number;
  count_mapped(*segment, bytes);
  history_.record(Action::kSegmentMap, address, bytes, &stream, pool.id(), context);
  auto& block = *segment->first;
  const auto found = segments_.find(address);
  if (found != segments_.begin()) {
    auto& before = std::prev(found)->second;
    if (before.range == &range && before.end() == address) {
      join(before, *segment);
      segment = &before;
    }
  }
  const auto after = segments_.find(segment->end());
  if (after != segments_.end() && after->second.range == &range) join(*segment, after->second);
  return merge_and_insert(block);
}

// `right` begins where `left` ends, and becomes a part of it.
void Heap::join(Segment& left, Segment& right) {
  for (Block* block = right.first; block != nullptr; block = block->right) block->segment = &left;
  left.last->right = right.first;
  right.first->left = left.last;
  left.last = right.last;
  left.bytes += right.bytes;
  --left.pool->segments;
  segments_.erase(right.address);
}

std::size_t Heap::cudas_bytes_to_map(Pool& pool, std::size_t rounded, Stream& stream) const {
  const std::size_t segment = policy_.segment_bytes(rounded);
  if (policy_.segments == Segments::kCuda) return segment;
  const auto [range, gap] = lowest_gap(pool.share(stream, class_of(rounded)), rounded);
  if (range == nullptr) return segment;
  const Block* const before = free_block_before(*range, gap);
  const std::size_t pages =
      round_up(rounded - (before == nullptr ? 0 : std::min(before->bytes, rounded)), range->page);
  return limit_is_programs_ ? std::max(segment, pages) : pages;
}

// --- Ranges of addresses ---

// nullptr if there are no addresses for a block of `rounded` bytes.
const AddressRange* Heap::reserve_range(Pool::Share& share, std::size_t page, std::size_t rounded) {
  const auto [address, bytes] = backing_.reserve(page);
  if (bytes < rounded) {
    if (bytes > 0) backing_.unreserve({address, bytes});
    return nullptr;
  }
  auto* const begin = reinterpret_cast<std::byte*>(address);
  return &share.ranges.emplace_back(
      AddressRange{.begin = begin, .end = begin + bytes, .page = page, .number = ++cuda_segments_});
}

void Heap::forget_if_empty(Pool::Share& share, const AddressRange* range) {
  if (next_mapped(*range, range->begin) != range->end) return;
  backing_.unreserve(
      {reinterpret_cast<std::uintptr_t>(range->begin), bytes_between(range->begin, range->end)});
  share.ranges.remove_if([range](const AddressRange& other) { return &other == range; });
}

// Where the next segment of the range at or after `from` begins, or the range ends.
std::byte* Heap::next_mapped(const AddressRange& range, std::byte* from) const {
  const auto next = segments_.lower_bound(from);
  return next == segments_.end() ? range.end : std::min(next->first, range.end);
}

// The free block that ends at `address`, nullptr if there is none.
Block* Heap::free_block_before(const AddressRange& range, std::byte* address) const {
  const auto next = segments_.lower_bound(address);
  if (next == segments_.begin()) return nullptr;
  const auto& segment = std::prev(next)->second;
  if (segment.range != &range || segment.end() != address) return nullptr;
  return segment.last->state == Block::State::kFree ? segment.last : nullptr;
}

// The lowest gap in which a block of `rounded` bytes ends, or begins, or that it spans.
Heap::Gap Heap::lowest_gap(const Pool::Share& share, std::size_t rounded) const {
  for (const auto& range : share.ranges) {
    for (std::byte* begin = range.begin; begin != range.end;) {
      std::byte* const end = next_mapped(range, begin);
      if (begin != end && has_addresses(range, begin, rounded)) return {&range, begin};
      if (end == range.end) break;
      begin = segments_.at(end).end();
    }
  }
  return {};
}

// Whether free blocks and gaps have `rounded` bytes without interruption, from the free block
// before `gap` on.
bool Heap::has_addresses(const AddressRange& range, std::byte* gap, std::size_t rounded) const {
  const Block* const before = free_block_before(range, gap);
  std::size_t bytes = before == nullptr ? 0 : before->bytes;
  for (;;) {
    std::byte* const end = next_mapped(range, gap);
    bytes += bytes_between(gap, end);
    if (bytes >= rounded) return true;
    if (end == range.end) return false;
    const auto& segment = segments_.at(end);
    if (segment.first->state != Block::State::kFree) return false;
    bytes += segment.first->bytes;
    if (bytes >= rounded) return true;
    if (segment.first != segment.last) return false;
    gap = segment.end();
  }
}

// --- Returning memory ---

// The smallest block that makes room, or else the largest ones until they do, or all oversize ones.
void Heap::choose_oversize_as_cuda(std::size_t rounded, Stream& stream,
                                   std::vector<Block*>& chosen) {
  if (class_of(rounded) == SizeClass::kSmall) return;
  const auto& blocks = route(stream).share(stream, SizeClass::kLarge).free;
  const auto can_go = [](const Block& block) {
    return !block.segment->is_expandable() && !block.is_part();
  };
  const std::size_t wanted = std::max(rounded, policy_.max_split_bytes);
  Block* const enough = blocks.best_fit(wanted);
  if (enough != nullptr && can_go(*enough)) {
    chosen.push_back(enough);
    return;
  }
  std::size_t bytes = 0;
  Block* block = enough == nullptr ? blocks.largest() : blocks.before(*enough);
  for (; block != nullptr && bytes < wanted; block = blocks.before(*block)) {
    if (!policy_.is_oversize(block->bytes)) break;
    if (!can_go(*block)) continue;
    chosen.push_back(block);
    bytes += block->bytes;
  }
}

// Passes over the unused large segments. Each takes those whose age is at least the average, even
// if fewer would do.
void Heap::choose_oldest_as_cuda(std::vector<Block*>& chosen) const {
  if (!limit_is_programs_) return;
  const auto threshold =
      static_cast<std::size_t>(policy_.garbage_collection_threshold * static_cast<double>(limit_));
  const auto reserved = static_cast<std::size_t>(statistics_.reserved_bytes.current());
  if (reserved <= threshold) return;
  std::vector<Block*> blocks;
  std::uint64_t ages = 0;
  const auto age = [&](const Block& block) { return clock_ - block.freed_at; };
  default_pool_.for_each_free([&](Block& block) {
    const auto& segment = *block.segment;
    if (segment.size_class != SizeClass::kLarge || segment.is_expandable() || block.is_part())
      return;
    blocks.push_back(&block);
    ages += age(block);
  });
  std::size_t bytes = 0;
  while (bytes < reserved - threshold && !blocks.empty()) {
    const double average = static_cast<double>(ages) / static_cast<double>(blocks.size());
    const auto is_young = [&](const Block* block) {
      return static_cast<double>(age(*block)) < average;
    };
    const auto old = std::partition(blocks.begin(), blocks.end(), is_young);
    for (auto it = old; it != blocks.end(); ++it) {
      chosen.push_back(*it);
      bytes += (*it)->bytes;
      ages -= age(**it);
    }
    blocks.erase(old, blocks.end());
  }
}

}  // namespace openreg::memory
