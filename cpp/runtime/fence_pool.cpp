#include "runtime/fence_pool.h"

#include <array>
#include <new>
#include <utility>

#include "base/mutex.h"

namespace openreg {

// GCC and Clang say in different ways that the address sanitizer is on.
#if defined(__SANITIZE_ADDRESS__)
#define OPENREG_FENCES_RECYCLED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OPENREG_FENCES_RECYCLED 0
#endif
#endif
#ifndef OPENREG_FENCES_RECYCLED
#define OPENREG_FENCES_RECYCLED 1
#endif

#if !OPENREG_FENCES_RECYCLED

// Recycled memory would hide a use after free.
void* allocate_fence(std::size_t bytes) { return ::operator new(bytes); }
void free_fence(void* memory) noexcept { ::operator delete(memory); }

#else

namespace {

// Free memory, linked through itself.
struct FreeFence {
  FreeFence* next;
};

struct Batch {
  FreeFence* first = nullptr;
  std::size_t count = 0;
};

constexpr std::size_t kBatch = 128;

// Full batches, which pass from threads that free to threads that allocate. Leaked, because threads
// may outlive static objects.
struct Exchange {
  Mutex mutex;
  std::array<FreeFence*, 64> batches OPENREG_GUARDED_BY(mutex){};
  std::size_t count OPENREG_GUARDED_BY(mutex) = 0;
};

Exchange& exchange() {
  static auto& exchange = *new Exchange;
  return exchange;
}

void release(Batch& batch) noexcept {
  while (FreeFence* const memory = batch.first) {
    batch.first = memory->next;
    ::operator delete(memory);
  }
  batch.count = 0;
}

// Per thread: one batch to take from and give to, and a spare full one.
struct ThreadCache {
  Batch current;
  Batch full;

  ~ThreadCache() {
    release(current);
    release(full);
  }
};

thread_local ThreadCache t_cache;

bool take_batch(Batch& batch) {
  auto& all = exchange();
  const LockGuard lock(all.mutex);
  if (all.count == 0) return false;
  batch = {all.batches[--all.count], kBatch};
  return true;
}

bool give_batch(Batch& batch) noexcept {
  auto& all = exchange();
  const LockGuard lock(all.mutex);
  if (all.count == all.batches.size()) return false;
  all.batches[all.count++] = std::exchange(batch, {}).first;
  return true;
}

}  // namespace

void* allocate_fence(std::size_t bytes) {
  auto& [current, full] = t_cache;
  if (current.count == 0) {
    if (full.count != 0) {
      std::swap(current, full);
    } else if (!take_batch(current)) {
      return ::operator new(bytes);
    }
  }
  FreeFence* const memory = current.first;
  current.first = memory->next;
  --current.count;
  return memory;
}

void free_fence(void* memory) noexcept {
  auto& [current, full] = t_cache;
  if (current.count == kBatch) {
    if (full.count != 0 && !give_batch(full)) release(full);
    std::swap(current, full);
  }
  current.first = new (memory) FreeFence{current.first};
  ++current.count;
}

#endif

}  // namespace openreg
