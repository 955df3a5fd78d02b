#include "distributed/stash.h"

#include <thread>

#include "backend/allocator.h"
#include "backend/stream.h"
#include "memory/command_check.h"
#include "memory/device_heap.h"

namespace openreg::distributed {

namespace {
constexpr int kAttempts = 10'000;  // the memory debugger may keep a freed block
}

// Note [Memory that Gloo uses]
// The program frees a tensor after it has waited, and the allocator counts the memory as free at
// once, as it does with NCCL. But the wait is a stream's: Gloo may be at work for longer. So the
// block is recorded as used by the collective's stream, which passes the collective when Gloo has
// finished: until then the heap keeps the block pending. A collective that is given up ends for its
// stream before that. Then the blocks that are pending stay so, and what the program has not freed
// yet belongs to the stash again.
void Stash::release() {
  Memory memory;  // freed without the lock
  const std::lock_guard lock(mutex_);
  if (user_ == nullptr) {
    std::swap(memory, memory_);
    return;
  }
  if (given_up_) return;
  auto& allocator = backend::device_allocator();
  for (auto& storage : std::exchange(memory_, {})) {
    if (storage.data() == nullptr) continue;
    // Kept: memory that others share, which is freed without a wait, and the collective's own,
    // which its stream would reuse in order.
    if (storage.data_ptr().get_deleter() != allocator.raw_deleter() ||
        backend::streams_of(storage.data()).back() == user_) {
      memory_.push_back(std::move(storage));
      continue;
    }
    allocator.recordStream(storage.data_ptr(), backend::to_torch(*user_));
    released_.push_back({storage.getWeakStorageImpl(), memory::checks::block_of(storage.data())});
    memory.push_back(std::move(storage));
  }
}

void Stash::gloo_finished() noexcept {
  Memory memory;
  const std::lock_guard lock(mutex_);
  if (user_ == nullptr) return;
  std::swap(memory, memory_);
  released_.clear();
  if (!held_.empty()) {
    memory::device_heap(user_->device()).locked([&](memory::Heap& heap) {
      for (auto* block : held_) heap.release_pending(*block);
    });
    held_.clear();
  }
  user_ = nullptr;
}

void Stash::give_up() {
  const std::lock_guard lock(mutex_);
  if (user_ == nullptr || std::exchange(given_up_, true)) return;
  auto& heap = memory::device_heap(user_->device());
  for (const auto& [weak, address] : std::exchange(released_, {})) {
    if (auto storage = weak.lock()) {
      memory_.emplace_back(std::move(storage));
      continue;
    }
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      auto* const block = heap.locked([&](memory::Heap& of) { return of.hold_pending(address); });
      if (block != nullptr) {
        held_.push_back(block);
        break;
      }
      std::this_thread::yield();  // another thread is about to free it
    }
  }
}

}  // namespace openreg::distributed
