#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "backend/pool_statistics.h"

namespace openreg {
class Stream;
}

namespace openreg::backend {

/// A point in the work of a stream.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual bool passed() const noexcept = 0;
};

/// What a pool needs of its device.
class PoolBacking {
 public:
  virtual ~PoolBacking() = default;
  /// New memory of `bytes`, a multiple of BlockPool::kSegmentBytes; nullptr where the device has no
  /// room.
  virtual void* map(std::size_t bytes) = 0;
  virtual void unmap(void* segment) noexcept = 0;
  /// The end of the work that `stream` has now.
  virtual std::unique_ptr<Mark> mark(Stream& stream) = 0;
};

/// One device's memory: who holds which block, and the cache of those that nobody holds. See Note
/// [Stream order] in block_pool.cpp. Bookkeeping only: never touches the memory, never waits, never
/// looks into a stream. Not thread safe: the owner locks.
class BlockPool {
  struct Block;

 public:
  static constexpr std::size_t kBlockBytes = 512;                   ///< sizes are multiples of it
  static constexpr std::size_t kSmallBytes = std::size_t{1} << 20;  ///< the largest small block
  static constexpr std::size_t kSegmentBytes =
      std::size_t{2} << 20;  ///< small blocks' segments; others' granularity

  explicit BlockPool(PoolBacking& backing);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// At least `bytes` (> 0), aligned to kBlockBytes, for work of `stream` from now on; nullptr
  /// where neither the cache nor the device has room.
  void* allocate(std::size_t bytes, Stream& stream);
  /// The program lets go of a block. Work that is queued may still use it. Returns its size with
  /// rounding.
  std::size_t free(void* address);
  /// The block is used by `stream` too: after free() it is not reused before the work which that
  /// has then is done.
  void record_stream(void* address, Stream& stream);
  /// Makes freed blocks available whose marks have passed. allocate() does it too.
  void collect();

  /// Segments that nobody holds a block of. Their memory may still be in use by queued work.
  using Segments = std::vector<Block*>;
  /// Takes them out of the cache.
  Segments detach_unused();
  /// Gives them back to the device. No work may use them any more.
  void release(const Segments& segments);
  /// Puts them back into the cache.
  void restore(const Segments& segments);

  PoolStatistics& statistics() noexcept { return statistics_; }

 private:
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const noexcept;
    bool operator()(const Block* a, std::size_t bytes) const noexcept;
  };
  using FreeList = std::set<Block*, BySize>;
  using FreeLists = std::array<FreeList, 2>;  // of each size class
  struct Pending {
    std::unique_ptr<Mark> mark;
    Block* block;
  };

  FreeList& free_list(Stream& stream, SizeClass size_class);
  Block* map_segment(std::size_t bytes, Stream& stream, SizeClass size_class);
  void insert_free(Block& block);
  void remove_free(Block& block);
  void split(Block& block, std::size_t bytes);
  Block& merge(Block& left, Block& right);
  void make_available(Block& block);
  Block& block_at(void* address);

  PoolBacking& backing_;
  std::unordered_map<void*, std::unique_ptr<Block>>
      blocks_;  // by address: held, free and pending ones
  std::unordered_map<Stream*, FreeLists> free_;
  Stream* last_stream_ = nullptr;  // most calls are of the same stream as the one before
  FreeLists* last_lists_ = nullptr;
  std::map<Stream*, std::deque<Pending>>
      pending_;  // by the stream waited for, in the order of its work
  PoolStatistics statistics_;
};

}  // namespace openreg::backend
