#pragma once

#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <utility>
#include <vector>

#include "memory/block.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// The memory that a collective uses. It belongs to the collective until the program has made a
/// stream wait for it: then, as with NCCL, it may be reused in the order of that stream. Gloo's
/// threads know no streams: while they use the memory, it is not reused, even if the collective has
/// been given up. Thread safe.
class Stash {
 public:
  using Memory = c10::SmallVector<c10::Storage, 4>;

  /// `user`: the stream of the collective if Gloo works on the memory itself; else nullptr.
  Stash(Memory memory, Stream* user) : memory_(std::move(memory)), user_(user) {}
  Stash(const Stash&) = delete;
  Stash& operator=(const Stash&) = delete;

  /// Called when a stream waits for the collective.
  void release();
  /// Called when Gloo does not use the memory any more, or has never begun to.
  void gloo_finished() noexcept;
  /// Called before the collective ends for its stream although Gloo goes on.
  void give_up();

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Released {
    WeakStorage storage;
    const void* address;
  };

  std::mutex mutex_;
  Memory memory_;
  Stream* user_;                    // nullptr: Gloo does not use the memory
  std::vector<Released> released_;  // what Gloo still uses
  std::vector<memory::Block*> held_;
  bool given_up_ = false;
};

}  // namespace openreg::distributed
