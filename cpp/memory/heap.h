#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "memory/backing.h"
#include "memory/block.h"
#include "memory/block_map.h"
#include "memory/checkpoint.h"
#include "memory/history.h"
#include "memory/policy.h"
#include "memory/pool.h"
#include "memory/segment_info.h"
#include "memory/statistics.h"

namespace openreg::memory {

/// One device's memory: which blocks are in use, and the cache of free ones. See Note [Stream
/// order] in heap.cpp. Bookkeeping only: it never touches the memory, never waits, and never looks
/// into a stream. Not thread safe: the owner locks.
class Heap {
 public:
  explicit Heap(Backing& backing);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // --- Blocks ---

  /// Memory of at least `bytes` (> 0), aligned to kBlockBytes, for work that is enqueued on
  /// `stream` from now on. From the cache; nullptr if nothing in it fits.
  void* allocate_cached(std::size_t bytes, Stream& stream, const Context& context = {});
  /// Like allocate_cached(), with new memory from the device if necessary; nullptr if the device
  /// has no room.
  void* allocate(std::size_t bytes, Stream& stream, const Context& context = {});
  /// Like allocate(), but only with new memory from the device.
  void* allocate_mapped(std::size_t bytes, Stream& stream, const Context& context = {});
  /// Like allocate(), from the cache of pools that the program offers for use when memory runs out;
  /// with CUDA's segments, only for an allocation that is not routed to a private pool.
  void* allocate_last_resort(std::size_t bytes, Stream& stream, const Context& context = {});
  /// Frees a block. Queued work may still use it. Returns its rounded size. Throws Error if no held
  /// block begins at `address`, and what Backing::record_event() throws; then the block is still
  /// held.
  std::size_t free(void* address, const Context& context = {});
  /// Declares that `stream` uses the block too: after free() it is not reused until the work that
  /// `stream` had at that time is done. Throws Error if no held block begins at `address`.
  void record_stream(void* address, Stream& stream);
  /// The streams whose work may use the block: its own, and those of record_stream(). Throws as
  /// record_stream() does.
  std::vector<Stream*> streams_of(const void* address) const;
  /// Keeps the freed block that begins at `address`, and that other streams have yet to finish
  /// with, from being reused until release_pending(). nullptr: there is none.
  Block* hold_pending(const void* address);
  /// Ends hold_pending().
  void release_pending(Block& block);
  /// Makes those freed blocks available that other streams have finished with. Allocations do so
  /// too.
  void collect();
  /// The streams that freed blocks wait for.
  std::vector<Stream*> awaited_streams() const;

  // --- Returning memory to the device ---

  /// Free memory on its way back to the device, in pieces of whole kSegmentBytes; of CUDA's
  /// segments, whole segments, or whole pages if they are expandable. Queued work may still use it:
  /// the owner waits for that work before it releases them.
  using Pieces = std::vector<Block*>;
  /// Removes from the cache all unused memory of the default pool and of the private pools that the
  /// program no longer uses; with an id, only that of this private pool, if it is no longer used.
  Pieces detach_unused(PoolId pool = {});
  /// Removes enough of the stream's oversize blocks (see Policy::max_split_bytes) to make room for
  /// one of `bytes`; none if all of them together are too small, or if a block of `bytes` is not
  /// oversize. With CUDA's segments: all of them if they are too small, and at least
  /// max_split_bytes also for smaller blocks.
  Pieces detach_oversize(std::size_t bytes, Stream& stream);
  /// Removes the memory of the default pool that has been unused the longest, enough to bring
  /// reserved memory down to the policy's threshold. With CUDA's segments: only if the program has
  /// set the limit, and all large segments whose age is at least the average.
  Pieces detach_oldest();
  /// Bytes that detach_unused() would remove now; with `of_awaited`, also those that other
  /// streams have yet to finish with.
  std::size_t unused_bytes(bool of_awaited = true) const;
  /// How much allocate() would request for a segment of its own.
  std::size_t bytes_of_segment(std::size_t bytes) const;
  /// How much new memory allocate() would request from the device if nothing in the cache fits.
  std::size_t bytes_to_map(std::size_t bytes, Stream& stream);
  /// Returns detached pieces to the device. No work may use them any more.
  void release(const Pieces& pieces);
  /// Puts detached pieces back into the cache.
  void restore(const Pieces& pieces);

  // --- Pools ---

  /// Declares a use of a pool by the program. A pool is made at its first use. Throws Error for the
  /// default pool.
  void add_use(PoolId pool);
  /// Ends a use of add_use(). Throws Error if the program no longer uses the pool. So do
  /// set_use_on_oom() and set_no_split() if there is no such pool, and remove_route() if the route
  /// has been removed.
  void remove_use(PoolId pool);
  int uses(PoolId pool) const;
  void set_use_on_oom(PoolId pool, bool value);
  void set_no_split(PoolId pool, bool value);

  /// Which allocations a route is for. Called under the owner's lock, so it must take no lock.
  using Filter = std::function<bool(const Stream&)>;
  /// From now on allocations that `filter` accepts come from `pool`; if several routes accept one,
  /// the newest counts. A route is a use of its pool.
  int add_route(PoolId pool, Filter filter);
  void remove_route(int route);

  /// The blocks of a private pool that the program holds: none if there is no such pool.
  Checkpoint checkpoint(PoolId pool) const;
  /// Makes the program hold those blocks again that it has freed since the checkpoint. Throws
  /// Error, and changes nothing, if there is no such pool, if the program holds another block of
  /// it, or if other streams have yet to finish with one of them.
  void restore_checkpoint(const Checkpoint& checkpoint);

  // --- Settings and statistics ---

  /// Bytes that may be reserved, and whether that is less than the device has because the program
  /// wants it so.
  void set_limit(std::size_t bytes, bool by_program = false) {
    limit_ = bytes;
    limit_is_programs_ = by_program;
  }
  std::size_t limit() const noexcept { return limit_; }
  /// Throws Error, and changes nothing, if the heap has memory and `policy` has CUDA's segments
  /// where the present one has others, or the reverse.
  void set_policy(const Policy& policy);
  const Policy& policy() const noexcept { return policy_; }

  Statistics& statistics() noexcept { return statistics_; }
  std::map<PoolId, ClassStat>& reserved_by_private_pools() noexcept { return private_bytes_; }
  History& history() noexcept { return history_; }
  /// The segments of all pools or of one, in the order of their addresses.
  std::vector<SegmentInfo> segments(const PoolId* pool = nullptr) const;
  /// Notes that an allocation of `bytes` has failed after all attempts, while the device had `free`
  /// bytes.
  void out_of_memory(std::size_t bytes, std::size_t free, const Stream& stream,
                     const Context& context);
  /// Adds `text` to the history of the held block that begins at `address`, if there is one.
  void annotate(const void* address, const std::string& text, const Context& context);
  /// Context of the held block that begins at `address`, if any was recorded.
  Context context_of(const void* address) const;

 private:
  struct Pending {
    std::unique_ptr<RecordedEvent> event;
    Block* block;
  };
  struct Route {
    int id;
    Pool* pool;
    Filter filter;
  };
  // How an operation changes the number and bytes of free blocks that share a segment with others.
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
  void* take_oversize(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                      const Context& context);
  void* take(Block& block, std::size_t rounded, std::size_t bytes, bool splits,
             const Context& context);
  void* hold(Block& block, std::size_t rounded, std::size_t bytes, bool splits,
             InactiveChange change, const Context& context);
  std::size_t free_later(Block& block, const Context& context);
  void release_block(Block& block, const Context& context);
  void make_available(Block& block, const Context& context);
  Block& merge_and_insert(Block& block);
  void apply(const Segment& segment, InactiveChange change);
  void insert_free(Block& block);
  void remove_free(Block& block);
  Block& split(Block& block, std::size_t bytes);
  Block& take_part(Block& block, std::byte* address, std::size_t bytes, InactiveChange& change);
  void absorb_right(Block& block);
  Block& held_block(const void* address) const;
  Block& new_block();
  void delete_block(Block& block);
  template <class F>
  void for_each_held(PoolId pool, F f) const;
  Block* free_block_around(const Pool& pool, const Checkpoint::HeldBlock& wanted);

  bool within_limit(std::size_t bytes) const;
  Segment* extensible_segment(Pool& pool, std::size_t rounded, Stream& stream);
  template <class F>
  void for_each_unused(PoolId pool, F f) const;
  Block* extend_segment(Pool& pool, std::size_t rounded, Stream& stream, InactiveChange& change,
                        const Context& context);
  Block* map_segment(Pool& pool, std::size_t rounded, Stream& stream, const Context& context);
  Segment& add_segment(Pool& pool, SizeClass size_class, Stream& stream, void* memory,
                       std::size_t bytes, const Context& context);
  void count_mapped(const Segment& segment, std::size_t bytes);
  void count_unmapped(const Segment& segment, std::size_t bytes);
  Block* detach_part(Block& block);
  template <class Choose>
  Pieces detach(Choose choose);
  void cut_out(Block& piece);
  void forget_if_given_up(Pool& pool);
  void record(Action action, const Block& block, const Context& context);

  // CUDA's segments, see the Note in cuda_segments.cpp.
  struct Gap {
    const AddressRange* range = nullptr;  // null: there is no such gap
    std::byte* begin = nullptr;
  };
  void* take_as_cuda(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                     bool expandable, const Context& context);
  Block* cudas_best_fit(const FreeList& blocks, std::size_t rounded, bool expandable) const;
  bool cuda_splits(const Block& block, std::size_t rounded, bool expandable) const;
  void* map_as_cuda(Pool& pool, std::size_t rounded, std::size_t bytes, Stream& stream,
                    const Context& context);
  Block* map_pages(Pool& pool, std::size_t rounded, Stream& stream, const Context& context);
  Block& add_pages(Pool& pool, SizeClass size_class, Stream& stream, const AddressRange& range,
                   std::byte* address, std::size_t bytes, const Context& context);
  const AddressRange* reserve_range(Pool::Share& share, std::size_t page, std::size_t rounded);
  void forget_if_empty(Pool::Share& share, const AddressRange* range);
  Gap lowest_gap(const Pool::Share& share, std::size_t rounded) const;
  bool has_addresses(const AddressRange& range, std::byte* gap, std::size_t rounded) const;
  std::byte* next_mapped(const AddressRange& range, std::byte* from) const;
  Block* free_block_before(const AddressRange& range, std::byte* address) const;
  std::size_t size_with_gap(const Block& block) const;
  void join(Segment& left, Segment& right);
  std::size_t cudas_bytes_to_map(Pool& pool, std::size_t rounded, Stream& stream) const;
  void choose_oversize_as_cuda(std::size_t rounded, Stream& stream, std::vector<Block*>& chosen);
  void choose_oldest_as_cuda(std::vector<Block*>& chosen) const;

  Backing& backing_;
  Policy policy_;
  std::size_t oversize_from_ = 0;  // rounded sizes for which take_from() needs take_oversize()
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  bool limit_is_programs_ = false;
  BlockMap held_;                           // by the address that the program was given
  std::map<std::byte*, Segment> segments_;  // by address
  std::deque<Block> blocks_;                // all blocks, including spare ones
  Block* spare_ = nullptr;                  // list of the unused ones
  Pool default_pool_{PoolId{}};
  std::map<PoolId, Pool> private_pools_;
  std::vector<Route> routes_;
  int last_route_ = 0;
  std::map<Stream*, std::deque<Pending>> pending_;  // by the awaited stream, in its order
  // Allocations so far; with CUDA's segments, searches of the default pool for large free blocks
  // while old ones may be collected.
  std::uint64_t clock_ = 0;
  std::uint64_t cuda_segments_ = 0;  // so far
  Statistics statistics_;
  std::map<PoolId, ClassStat> private_bytes_;  // including destroyed pools
  History history_;
};

}  // namespace openreg::memory
