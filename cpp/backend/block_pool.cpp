#include "backend/block_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "runtime/error.h"

namespace openreg::backend {

// Note [Stream order]
// A block belongs to the stream that it was allocated for. When the program frees it, commands that
// use it may still be queued; nobody waits for them. The block goes at once to the free list of its
// own stream, and only later allocations for that stream can get it: their commands come after the
// old ones in the same queue. That is why free lists are per stream, and why a free costs no
// synchronisation.
//
// A block that other streams used (record_stream) is marked on each of them when it is freed, and
// is *pending* until all marks have passed. Marks are looked at when memory is asked for, the
// oldest of each stream first.
//
// A segment can go back to the device only when no command uses it, in whichever stream: the owner
// detaches the unused segments, waits for the device without a lock, and then releases them. Memory
// that is freed meanwhile is not among them, so nothing is unmapped that the wait did not cover.

struct BlockPool::Block {
  enum class State : std::uint8_t { kFree, kHeld, kPending, kDetached };

  std::byte* address;
  std::size_t bytes;
  std::size_t requested = 0;
  Stream* stream;
  SizeClass size_class;
  State state = State::kFree;
  Block* left = nullptr;  // neighbours in the segment
  Block* right = nullptr;
  std::vector<Stream*> users{};  // other streams, see record_stream()
  std::size_t marks = 0;         // not passed yet

  bool is_part() const { return left != nullptr || right != nullptr; }
};

namespace {

constexpr std::size_t round_up(std::size_t bytes, std::size_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

// More cannot be rounded up to a segment.
constexpr std::size_t kMaxBytes =
    std::numeric_limits<std::size_t>::max() - BlockPool::kSegmentBytes;

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

}  // namespace

bool BlockPool::BySize::operator()(const Block* a, const Block* b) const noexcept {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

bool BlockPool::BySize::operator()(const Block* a, std::size_t bytes) const noexcept {
  return a->bytes < bytes;
}

BlockPool::BlockPool(PoolBacking& backing) : backing_(backing) {}

BlockPool::~BlockPool() = default;

void* BlockPool::allocate(std::size_t bytes, Stream& stream) {
  collect();
  if (bytes > kMaxBytes) return nullptr;
  const std::size_t rounded = round_up(bytes, kBlockBytes);
  const auto size_class = rounded <= kSmallBytes ? SizeClass::kSmall : SizeClass::kLarge;

  auto& list = free_list(stream, size_class);
  const auto best = list.lower_bound(rounded);
  Block* block = nullptr;
  if (best != list.end()) {
    block = *best;
    remove_free(*block);
  } else {
    block = map_segment(rounded, stream, size_class);
    if (block == nullptr) return nullptr;
  }
  if (block->bytes > rounded) split(*block, rounded);

  block->state = Block::State::kHeld;
  block->requested = bytes;
  statistics_.allocation.add(size_class, 1);
  statistics_.allocated_bytes.add(size_class, signed_bytes(block->bytes));
  statistics_.requested_bytes.add(size_class, signed_bytes(bytes));
  statistics_.active.add(size_class, 1);
  statistics_.active_bytes.add(size_class, signed_bytes(block->bytes));
  return block->address;
}

std::size_t BlockPool::free(void* address) {
  auto& block = block_at(address);
  std::vector<std::unique_ptr<Mark>> marks;  // made first: this may throw
  marks.reserve(block.users.size());
  for (auto* user : block.users) marks.push_back(backing_.mark(*user));

  statistics_.allocation.remove(block.size_class, 1);
  statistics_.allocated_bytes.remove(block.size_class, signed_bytes(block.bytes));
  statistics_.requested_bytes.remove(block.size_class, signed_bytes(block.requested));
  const std::size_t bytes = block.bytes;
  if (marks.empty()) {
    make_available(block);
    return bytes;
  }
  block.state = Block::State::kPending;
  block.marks = marks.size();
  for (std::size_t i = 0; i < marks.size(); ++i) {
    pending_[block.users[i]].push_back({std::move(marks[i]), &block});
  }
  block.users.clear();
  return bytes;
}

void BlockPool::record_stream(void* address, Stream& stream) {
  auto& block = block_at(address);
  if (block.stream == &stream || std::ranges::find(block.users, &stream) != block.users.end())
    return;
  block.users.push_back(&stream);
}

void BlockPool::collect() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    auto& queue = it->second;
    while (!queue.empty() && queue.front().mark->passed()) {
      auto& block = *queue.front().block;
      queue.pop_front();
      if (--block.marks == 0) make_available(block);
    }
    it = queue.empty() ? pending_.erase(it) : std::next(it);
  }
}

BlockPool::Segments BlockPool::detach_unused() {
  Segments unused;
  for (auto& [stream, lists] : free_) {
    for (auto& list : lists) {
      std::ranges::copy_if(list, std::back_inserter(unused),
                           [](const Block* block) { return !block->is_part(); });
    }
  }
  for (auto* block : unused) {
    remove_free(*block);
    block->state = Block::State::kDetached;
  }
  return unused;
}

void BlockPool::release(const Segments& segments) {
  for (auto* block : segments) {
    backing_.unmap(block->address);
    statistics_.segment.remove(block->size_class, 1);
    statistics_.reserved_bytes.remove(block->size_class, signed_bytes(block->bytes));
    ++statistics_.device_unmaps;
    blocks_.erase(block->address);
  }
}

void BlockPool::restore(const Segments& segments) {
  for (auto* block : segments) insert_free(*block);
}

BlockPool::FreeList& BlockPool::free_list(Stream& stream, SizeClass size_class) {
  if (&stream != last_stream_) {
    last_lists_ = &free_[&stream];
    last_stream_ = &stream;
  }
  return (*last_lists_)[static_cast<std::size_t>(size_class)];
}

BlockPool::Block* BlockPool::map_segment(std::size_t bytes, Stream& stream, SizeClass size_class) {
  const std::size_t segment_bytes = round_up(bytes, kSegmentBytes);
  void* address = backing_.map(segment_bytes);
  if (address == nullptr) return nullptr;
  statistics_.segment.add(size_class, 1);
  statistics_.reserved_bytes.add(size_class, signed_bytes(segment_bytes));
  ++statistics_.device_maps;
  auto block = std::make_unique<Block>(Block{.address = static_cast<std::byte*>(address),
                                             .bytes = segment_bytes,
                                             .stream = &stream,
                                             .size_class = size_class});
  return (blocks_[address] = std::move(block)).get();
}

void BlockPool::insert_free(Block& block) {
  block.state = Block::State::kFree;
  free_list(*block.stream, block.size_class).insert(&block);
  if (block.is_part()) {
    statistics_.inactive_split.add(block.size_class, 1);
    statistics_.inactive_split_bytes.add(block.size_class, signed_bytes(block.bytes));
  }
}

void BlockPool::remove_free(Block& block) {
  free_list(*block.stream, block.size_class).erase(&block);
  if (block.is_part()) {
    statistics_.inactive_split.remove(block.size_class, 1);
    statistics_.inactive_split_bytes.remove(block.size_class, signed_bytes(block.bytes));
  }
}

// Shortens `block`, which is in no list, to `bytes` and makes the rest a free block.
void BlockPool::split(Block& block, std::size_t bytes) {
  auto rest = std::make_unique<Block>(Block{.address = block.address + bytes,
                                            .bytes = block.bytes - bytes,
                                            .stream = block.stream,
                                            .size_class = block.size_class,
                                            .left = &block,
                                            .right = block.right});
  if (rest->right != nullptr) rest->right->left = rest.get();
  block.right = rest.get();
  block.bytes = bytes;
  auto& owner = blocks_[rest->address] = std::move(rest);
  insert_free(*owner);
}

// Joins two neighbours, neither in a list, into the left one.
BlockPool::Block& BlockPool::merge(Block& left, Block& right) {
  left.bytes += right.bytes;
  left.right = right.right;
  if (left.right != nullptr) left.right->left = &left;
  blocks_.erase(right.address);
  return left;
}

void BlockPool::make_available(Block& freed) {
  statistics_.active.remove(freed.size_class, 1);
  statistics_.active_bytes.remove(freed.size_class, signed_bytes(freed.bytes));
  Block* block = &freed;
  if (auto* left = block->left; left != nullptr && left->state == Block::State::kFree) {
    remove_free(*left);
    block = &merge(*left, *block);
  }
  if (auto* right = block->right; right != nullptr && right->state == Block::State::kFree) {
    remove_free(*right);
    block = &merge(*block, *right);
  }
  insert_free(*block);
}

BlockPool::Block& BlockPool::block_at(void* address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second->state != Block::State::kHeld) {
    throw Error("openreg: no tensor's memory starts at this address (got " +
                std::to_string(reinterpret_cast<std::uintptr_t>(address)) + ")");
  }
  return *found->second;
}

}  // namespace openreg::backend
