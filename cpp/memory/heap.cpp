#include "memory/heap.h"
#include "memory/heap_blocks.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"

namespace openreg::memory {

// Note [Stream order]
// A block belongs to the stream that it was allocated for. When the program frees it, commands that
// use it may still be queued, and the free does not wait for them. The block goes at once to the
// free list of its own stream, and only later allocations for that stream can get it: their
// commands come after the old ones in the same queue. So free lists are per stream, and a free
// costs no synchronisation.
//
// When a block that other streams used (record_stream) is freed, an event is recorded on each of
// them, and the block is *pending* until all of these have completed. Events are checked when
// memory is requested, the oldest of each stream first.
//
// Memory can be returned to the device only when no command of any stream uses it: the owner
// detaches what is free, waits for the device without a lock, and then releases it. Memory that is
// freed during the wait is not included, so the wait covers all that is unmapped.

namespace {

// More than this cannot be rounded up to a segment or to a power of two.
constexpr std::size_t kMaxBytes = std::numeric_limits<std::size_t>::max() / 4;

[[noreturn]] void throw_not_held(const void* address) {
  throw Error(
      "openreg: invalid device pointer (got " +
      std::to_string(reinterpret_cast<std::uintptr_t>(address)) +
      ", expected the address of a block in use); it may have been freed already, or belong "
      "to another allocator");
}

}  // namespace

Heap::Heap(Backing& backing) : backing_(backing) { set_policy({}); }

Heap::~Heap() = default;

void Heap::set_policy(const Policy& policy) {
  if (policy.is_cudas() != policy_.is_cudas()) {
    if (!segments_.empty()) {
      throw Error(
          "openreg: the allocator cannot begin or cease to follow CUDA's rules while it has memory "
          "from the device (got " +
          std::to_string(statistics_.reserved_bytes.current()) + " bytes, expected 0)");
    }
    default_pool_.reset(policy.is_cudas());
    for (auto& [id, pool] : private_pools_) pool.reset(policy.is_cudas());
  }
  policy_ = policy;
  // The smallest size that an oversize segment would be made for.
  const std::size_t oversize = policy.max_split_bytes;
  oversize_from_ =
      policy.is_cudas() || oversize == 0 ? 0 : (oversize - 1) / kSegmentBytes * kSegmentBytes + 1;
}

void* Heap::allocate_cached(std::size_t bytes, Stream& stream, const Context& context) {
  if (!pending_.empty()) collect();
  if (bytes > kMaxBytes) return nullptr;
  return take_from(route(stream), bytes, stream, context);
}

void* Heap::allocate(std::size_t bytes, Stream& stream, const Context& context) {
  if (void* address = allocate_cached(bytes, stream, context)) return address;
  return allocate_mapped(bytes, stream, context);
}

void* Heap::allocate_mapped(std::size_t bytes, Stream& stream, const Context& context) {
  if (bytes > kMaxBytes) return nullptr;
  const std::size_t rounded = policy_.round(bytes);
  auto& pool = route(stream);
  if (policy_.is_cudas()) return map_as_cuda(pool, rounded, bytes, stream, context);
  InactiveChange change;
  Block* block = extend_segment(pool, rounded, stream, change, context);
  if (block == nullptr) block = map_segment(pool, rounded, stream, context);
  if (block == nullptr) return nullptr;
  block->is_oversize = block->segment->is_oversize;
  ++clock_;
  const bool splits = block->bytes > rounded && !block->is_oversize && !pool.no_split;
  return hold(*block, rounded, bytes, splits, change, context);
}

void* Heap::allocate_last_resort(std::size_t bytes, Stream& stream, const Context& context) {
  if (bytes > kMaxBytes || (policy_.is_cudas() && !route(stream).is_default())) return nullptr;
  for (auto& [id, pool] : private_pools_) {
    if (!pool.use_on_oom) continue;
    void* const address =
        policy_.is_cudas() ? take_as_cuda(pool, policy_.round(bytes), bytes, stream, false, context)
                           : take_from(pool, bytes, stream, context);
    if (address != nullptr) return address;
  }
  return nullptr;
}

inline void* Heap::take_from(Pool& pool, std::size_t bytes, Stream& stream,
                             const Context& context) {
  const std::size_t rounded = policy_.round(bytes);
  if (rounded >= oversize_from_) return take_oversize(pool, rounded, bytes, stream, context);
  Block* const block = pool.share(stream, class_of(rounded)).free.best_fit(rounded);
  if (block == nullptr) return nullptr;
  ++clock_;
  return take(*block, rounded, bytes, block->bytes > rounded && !pool.no_split, context);
}

// take_from() for a size that oversize blocks may serve, and for CUDA's segments, whose rules
// depend on more than the size.
void* Heap::take_oversize(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                          const Context& context) {
  if (policy_.is_cudas()) {
    const bool expandable = policy_.segments == Segments::kCudaExpandable;
    return take_as_cuda(pool, rounded, bytes, stream, expandable, context);
  }
  const auto& share = pool.share(stream, class_of(rounded));
  Block* block = share.free.best_fit(rounded);
  Block* const whole = share.oversize.best_fit(rounded);
  if (whole != nullptr && whole->bytes - rounded < policy_.max_non_split_rounding &&
      (block == nullptr || whole->bytes <= block->bytes)) {
    block = whole;
    block->is_oversize = true;
  }
  if (block == nullptr) return nullptr;
  ++clock_;
  const bool splits = block->bytes > rounded && !block->is_oversize && !pool.no_split;
  return take(*block, rounded, bytes, splits, context);
}

std::size_t Heap::free(void* address, const Context& context) {
  auto& block = held_block(address);
  if (!block.users.empty()) return free_later(block, context);
  const std::size_t bytes = block.bytes;
  release_block(block, context);
  make_available(block, context);
  return bytes;
}

// Frees a block that other streams use: it becomes available when they have done the work that they
// have now.
std::size_t Heap::free_later(Block& block, const Context& context) {
  std::vector<std::unique_ptr<RecordedEvent>> events;  // first, because this may throw
  events.reserve(block.users.size());
  for (auto* user : block.users) events.push_back(backing_.record_event(*user));

  release_block(block, context);
  block.state = Block::State::kPending;
  block.events = static_cast<std::uint32_t>(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    pending_[block.users[i]].push_back({std::move(events[i]), &block});
  }
  block.users.clear();
  return block.bytes;
}

// The block no longer belongs to the program.
inline void Heap::release_block(Block& block, const Context& context) {
  held_.set(block.address, nullptr);
  const auto size_class = block.segment->size_class;
  statistics_.allocation.remove(size_class, 1);
  statistics_.allocated_bytes.remove(size_class, signed_bytes(block.bytes));
  statistics_.requested_bytes.remove(size_class, signed_bytes(block.requested));
  if (block.is_oversize) {
    statistics_.oversize_allocations.remove(size_class, 1);
    block.is_oversize = false;
  }
  if (history_.enabled()) record(Action::kFreeRequested, block, context);
}

void Heap::record_stream(void* address, Stream& stream) {
  auto& block = held_block(address);
  if (block.segment->stream == &stream ||
      std::ranges::find(block.users, &stream) != block.users.end())
    return;
  block.users.push_back(&stream);
}

std::vector<Stream*> Heap::streams_of(const void* address) const {
  const auto& block = held_block(address);
  auto streams = block.users;
  streams.push_back(block.segment->stream);
  return streams;
}

void Heap::collect() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    auto& queue = it->second;
    while (!queue.empty() && queue.front().event->completed()) {
      auto& block = *queue.front().block;
      queue.pop_front();
      if (--block.events == 0) make_available(block, {});
    }
    it = queue.empty() ? pending_.erase(it) : std::next(it);
  }
}

Block* Heap::hold_pending(const void* address) {
  for (const auto& [stream, events] : pending_) {
    const auto found = std::ranges::find(
        events, address,
        [](const Pending& pending) -> const void* { return pending.block->address; });
    if (found == events.end()) continue;
    ++found->block->events;
    return found->block;
  }
  return nullptr;
}

void Heap::release_pending(Block& block) {
  if (--block.events == 0) make_available(block, {});
}

std::vector<Stream*> Heap::awaited_streams() const {
  std::vector<Stream*> streams;
  for (const auto& [stream, events] : pending_) streams.push_back(stream);
  return streams;
}

// A block that is no longer in use becomes free.
inline void Heap::make_available(Block& block, const Context& context) {
  const auto size_class = block.segment->size_class;
  statistics_.active.remove(size_class, 1);
  statistics_.active_bytes.remove(size_class, signed_bytes(block.bytes));
  if (history_.enabled()) record(Action::kFreeCompleted, block, context);
  block.context.reset();
  block.requested = 0;
  merge_and_insert(block);
}

void Heap::restore(const Pieces& pieces) {
  for (auto* piece : pieces) merge_and_insert(*piece);
}

inline Block& Heap::held_block(const void* address) const {
  Block* block = held_.find(address);
  if (block == nullptr) throw_not_held(address);
  return *block;
}

void Heap::annotate(const void* address, const std::string& text, const Context& context) {
  const Block* block = held_.find(address);
  if (block == nullptr) return;
  const auto& segment = *block->segment;
  history_.record(Action::kAnnotate, address, block->bytes, segment.stream, segment.pool->id(),
                  context, text);
}

Context Heap::context_of(const void* address) const {
  const Block* block = held_.find(address);
  return block == nullptr ? nullptr : block->context;
}

void Heap::out_of_memory(std::size_t bytes, std::size_t free, const Stream& stream,
                         const Context& context) {
  ++statistics_.out_of_memory;
  history_.record(Action::kOutOfMemory, reinterpret_cast<const void*>(free), bytes, &stream,
                  route(stream).id(), context);
}

// A free without a context is recorded with the context of the allocation. CUDA records what was
// requested, so that the history tells what its rules would do.
void Heap::record(Action action, const Block& block, const Context& context) {
  const bool of_block = action != Action::kSegmentFree && action != Action::kSegmentUnmap &&
                        block.segment->is_cudas() && !history_.options().sizes_of_blocks;
  history_.record(action, block.address, of_block ? block.requested : block.bytes,
                  block.segment->stream, block.segment->pool->id(),
                  context ? context : block.context);
}

}  // namespace openreg::memory
