#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "memory/block.h"
#include "memory/free_list.h"
#include "memory/history.h"

namespace openreg::memory {

/// The id of a pool that no other has: {n, 0} for one that a graph makes of its own, {0, n} for one
/// that the program makes, as CUDA's.
PoolId new_pool_id(bool of_graph) noexcept;

/// Memory that is cached together: the default pool, or one that the program made (a MemPool, a
/// captured graph's). A pool's segments serve no other pool until they have gone back to the
/// device.
class Pool {
 public:
  explicit Pool(PoolId id) : id_(id) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  PoolId id() const noexcept { return id_; }
  bool is_default() const noexcept { return id_ == PoolId{}; }

  int uses = 0;              ///< by the program; at 0 its segments go back with the default pool's
  std::size_t segments = 0;  ///< mapped for it
  bool use_on_oom = false;   ///< serves others where all else has failed
  bool no_split = false;     ///< a block takes a whole segment

  /// What a stream has of one size class.
  struct Share {
    FreeList free;      ///< blocks that its work may use
    FreeList oversize;  ///< the same that are used as a whole only, see Policy::max_split_bytes
    Segment* growing =
        nullptr;  ///< the newest segment: it is extended while there is room behind it
  };
  Share& share(Stream& stream, SizeClass size_class) {
    if (&stream != last_stream_) {
      last_shares_ = &shares_[&stream];
      last_stream_ = &stream;
    }
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

  PoolId id_;
  std::unordered_map<Stream*, Shares> shares_;
  Stream* last_stream_ = nullptr;  // most calls are of the same stream as the one before
  Shares* last_shares_ = nullptr;
};

}  // namespace openreg::memory
