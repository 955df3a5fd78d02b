#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <unordered_map>

#include "memory/block.h"
#include "memory/free_list.h"
#include "memory/history.h"

namespace openreg::memory {

/// A new, unique id of a pool: {n, 0} if a graph makes it, {0, n} if the program makes it, as with
/// CUDA.
PoolId new_pool_id(bool of_graph) noexcept;

/// Memory that is cached together: the default pool, or one that the program made (a MemPool, a
/// captured graph's). A pool's segments serve no other pool until they have been returned to the
/// device.
class Pool {
 public:
  explicit Pool(PoolId id) : id_(id) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Sets whether free lists keep CUDA's order, and forgets all shares: none may have memory.
  void reset(bool keeps_order) {
    shares_.clear();
    last_stream_ = nullptr;
    keeps_order_ = keeps_order;
  }

  PoolId id() const noexcept { return id_; }
  bool is_default() const noexcept { return id_ == PoolId{}; }

  int uses = 0;  ///< by the program; at 0 its segments are returned with the default pool's
  std::size_t segments = 0;  ///< mapped for it
  bool use_on_oom = false;   ///< serves others if all else has failed
  bool no_split = false;     ///< a block takes a whole segment

  /// The memory of a stream for one size class.
  struct Share {
    FreeList free;      ///< blocks that its work may use
    FreeList oversize;  ///< the same, but used only as a whole, see Policy::max_split_bytes
    Segment* growing = nullptr;      ///< the newest segment, extended while there is room after it
    std::list<AddressRange> ranges;  ///< for CUDA's expandable segments
  };
  Share& share(Stream& stream, SizeClass size_class) {
    if (&stream != last_stream_) find_shares(stream);
    return (*last_shares_)[static_cast<std::size_t>(size_class)];
  }
  /// Calls f(Block&) for each free block.
  template <class F>
  void for_each_free(F f) const {
    for (const auto& [stream, shares] : shares_) {
      for (const auto& share : shares) {
        share.free.for_each(f);
        share.oversize.for_each(f);
      }
    }
  }

 private:
  using Shares = std::array<Share, kSizeClasses>;

  void find_shares(Stream& stream) {
    const auto [found, is_new] = shares_.try_emplace(&stream);
    if (is_new && keeps_order_) {
      for (auto& share : found->second) share.free.keep_order();
    }
    last_shares_ = &found->second;
    last_stream_ = &stream;
  }

  PoolId id_;
  bool keeps_order_ = false;
  std::unordered_map<Stream*, Shares> shares_;
  Stream* last_stream_ = nullptr;  // most calls are for the same stream as the previous call
  Shares* last_shares_ = nullptr;
};

}  // namespace openreg::memory
