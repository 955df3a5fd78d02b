#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "memory/backing.h"
#include "memory/block.h"
#include "memory/block_map.h"
#include "memory/history.h"
#include "memory/policy.h"
#include "memory/pool.h"
#include "memory/snapshot.h"
#include "memory/statistics.h"

namespace openreg::memory {

/// One device's memory: which blocks are in use, and the cache of free ones. See Note
/// [Stream order] in heap.cpp. Bookkeeping only: never touches the memory, never waits, never looks
/// into a stream. Not thread safe: the owner locks.
class Heap {
 public:
  explicit Heap(Backing& backing);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // --- Blocks ---

  /// Memory of at least `bytes` (> 0), aligned to kBlockBytes, for work of `stream` from now on:
  /// out of the cache; nullptr where that has none that fits.
  void* allocate_cached(std::size_t bytes, Stream& stream, const Context& context = {});
  /// The same, where need be with new memory from the device; nullptr where that has no room.
  void* allocate(std::size_t bytes, Stream& stream, const Context& context = {});
  /// The same out of pools that the program keeps for the case that nothing else is left.
  void* allocate_last_resort(std::size_t bytes, Stream& stream, const Context& context = {});
  /// The program lets go of a block. Work that is queued may still use it. Returns its size with
  /// rounding. Throws Error if no held block begins at `address`.
  std::size_t free(void* address, const Context& context = {});
  /// The block is used by `stream` too: after free() it is not reused before the work which that
  /// has then is done. Throws as free().
  void record_stream(void* address, Stream& stream);
  /// The streams whose work may use the block: its own, and those of record_stream(). Throws as
  /// free().
  std::vector<Stream*> streams_of(const void* address) const;
  /// Makes freed blocks available whose marks have passed. Allocating does it too.
  void collect();
  /// The streams whose marks blocks wait for.
  std::vector<Stream*> awaited_streams() const;

  // --- Giving memory back to the device ---

  /// Free memory on its way back to the device, in pieces of whole kSegmentBytes. Queued work may
  /// still use it: the owner waits for that before it releases them.
  using Pieces = std::vector<Block*>;
  /// Takes all of the default pool and of private ones that the program has given up out of the
  /// cache; with an id, only what is of that private pool if it has been given up.
  Pieces detach_unused(PoolId pool = {});
  /// Takes out as many of the largest blocks that are not split as could make room for such a one
  /// of `bytes` (see Policy::max_split_bytes); none where that is not what is asked for.
  Pieces detach_oversize(std::size_t bytes, Stream& stream);
  /// Takes out what has been unused for longest, as much as brings what is reserved below the
  /// threshold of the policy.
  Pieces detach_oldest();
  /// Bytes that detach_unused() would take out now; with `of_awaited`, or could when no block waits
  /// for a mark.
  std::size_t unused_bytes(bool of_awaited = true) const;
  /// New memory that allocate() would ask the device for, if nothing in the cache fits.
  std::size_t bytes_to_map(std::size_t bytes, Stream& stream);
  /// Gives them back to the device. No work may use them any more.
  void release(const Pieces& pieces);
  /// Puts them back into the cache.
  void restore(const Pieces& pieces);

  // --- Pools ---

  /// The program uses a pool, which is made at its first use.
  void add_use(PoolId pool);
  void remove_use(PoolId pool);
  int uses(PoolId pool) const;
  void set_use_on_oom(PoolId pool, bool value);
  void set_no_split(PoolId pool, bool value);

  /// Which allocations a route is for; asked under the owner's lock, so it takes none.
  using Filter = std::function<bool(const Stream&)>;
  /// From now on allocations that `filter` accepts come from `pool`; where several routes do, the
  /// newest counts. A route is a use of its pool.
  int add_route(PoolId pool, Filter filter);
  void remove_route(int route);

  // --- Settings and figures ---

  /// Bytes that may be reserved.
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  std::size_t limit() const noexcept { return limit_; }
  void set_policy(const Policy& policy) { policy_ = policy; }
  const Policy& policy() const noexcept { return policy_; }

  Statistics& statistics() noexcept { return statistics_; }
  std::map<PoolId, ClassCounter>& reserved_by_private_pools() noexcept { return private_bytes_; }
  History& history() noexcept { return history_; }
  /// The segments of all pools or of one, in the order of their addresses.
  std::vector<SegmentInfo> segments(const PoolId* pool = nullptr) const;
  /// An allocation of `bytes` has failed for good, while the device had `free` bytes.
  void out_of_memory(std::size_t bytes, std::size_t free, const Stream& stream,
                     const Context& context);
  /// Context of the held block that begins at `address`, if any was recorded.
  Context context_of(const void* address) const;

 private:
  struct Pending {
    std::unique_ptr<Mark> mark;
    Block* block;
  };
  struct Route {
    int id;
    Pool* pool;
    Filter filter;
  };
  // What an operation changes of the free blocks that share a segment with others.
  struct InactiveChange {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
    void add(const Block& block, int sign);
  };

  Pool& route(const Stream& stream) {
    return routes_.empty() ? default_pool_ : newest_route(stream);
  }
  Pool& newest_route(const Stream& stream);
  Pool& existing(PoolId pool);
  void* take_from(Pool& pool, std::size_t bytes, Stream& stream, const Context& context);
  void* hold(Block& block, std::size_t rounded, std::size_t bytes, InactiveChange change,
             const Context& context);
  std::size_t free_later(Block& block, const Context& context);
  void let_go(Block& block, const Context& context);
  void make_available(Block& block, const Context& context);
  void merge_and_insert(Block& block);
  void apply(SizeClass size_class, InactiveChange change);
  void insert_free(Block& block);
  void remove_free(Block& block);
  Block& split(Block& block, std::size_t bytes);
  void absorb_right(Block& block);
  Block& held_block(const void* address) const;
  Block& new_block();
  void delete_block(Block& block);

  bool within_limit(std::size_t bytes) const;
  Segment* extensible_segment(Pool& pool, std::size_t rounded, Stream& stream);
  template <class F>
  void for_each_unused(PoolId pool, F f) const;
  Block* extend_segment(Pool& pool, std::size_t rounded, Stream& stream, InactiveChange& change,
                        const Context& context);
  Block* map_segment(Pool& pool, std::size_t rounded, Stream& stream, const Context& context);
  void count_mapped(const Segment& segment, std::size_t bytes);
  void count_unmapped(const Segment& segment, std::size_t bytes);
  Block* detach_inner_part(Block& block);
  template <class Choose>
  Pieces detach(Choose choose);
  void cut_out(Block& piece);
  void forget_if_given_up(Pool& pool);
  void record(Action action, const Block& block, const Context& context);

  Backing& backing_;
  Policy policy_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  BlockMap held_;                           // by the address that the program has
  std::map<std::byte*, Segment> segments_;  // by address
  std::deque<Block> blocks_;                // all there have been
  Block* spare_ = nullptr;                  // of them, those that stand for nothing now
  Pool default_pool_{PoolId{}};
  std::map<PoolId, Pool> private_pools_;
  std::vector<Route> routes_;
  int last_route_ = 0;
  std::map<Stream*, std::deque<Pending>> pending_;  // by the stream waited for, in its order
  std::uint64_t allocations_ = 0;                   // so far
  Statistics statistics_;
  std::map<PoolId, ClassCounter> private_bytes_;  // also of pools that are gone
  History history_;
};

}  // namespace openreg::memory
