#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "address_space/range_allocator.h"
#include "base/mutex.h"
#include "memory/pinned/signal_safe_snapshot.h"

namespace openreg::memory {

/// Pinned memory that is mapped twice: for the program, and at a constant distance for the device.
/// So the program's pages can be protected while the device uses them. See Note [Two windows of
/// pinned memory] in pinned_windows.cpp. Thread safe; never destroyed.
class PinnedWindows {
 public:
  struct Block {
    std::uintptr_t begin = 0;  // for the program
    std::uintptr_t end = 0;

    bool contains(std::uintptr_t address) const noexcept {
      return begin <= address && address < end;
    }
  };

  /// The system's page size, a power of two. Async-signal-safe after the first call.
  static std::uintptr_t page_size() noexcept;
  /// The first address of the page.
  static std::uintptr_t page_of(std::uintptr_t address) noexcept {
    return address & ~(page_size() - 1);
  }

  /// Makes the windows at the first call. Null, and the first call prints a line, if the system
  /// refuses them.
  static PinnedWindows* get();
  /// The windows; null as long as there are none, and in a forked child.
  static PinnedWindows* get_if_made() noexcept { return made_.load(std::memory_order_acquire); }

  /// A new block of zeroed pages, at the program's address; nullptr if there is no room for it.
  /// `bytes` is a multiple of the page size.
  void* map(std::size_t bytes);
  /// False: this is no block of map().
  bool unmap(void* block) noexcept;

  /// The program uses the first `bytes` of a block of map(), and nothing behind them. Ignores other
  /// memory.
  void set_used(const void* block, std::size_t bytes);
  /// Behind the last byte of the block that the program uses.
  std::uintptr_t end_of_use(Block block) noexcept;

  /// Where the device finds what is at `p` for the program: `p` itself if that is no address of the
  /// windows.
  std::uintptr_t device_address(std::uintptr_t p) const noexcept {
    return p - begin_ < bytes_ ? p + bytes_ : p;
  }
  /// The block that this address of the program is in; empty if there is none. Async-signal-safe.
  Block block_of(std::uintptr_t address) const noexcept;

 private:
  PinnedWindows(int file, std::uintptr_t begin, std::size_t bytes);
  static PinnedWindows* make();
  static void become_private() noexcept;
  bool map_at(std::uintptr_t address, std::uintptr_t block, std::size_t bytes) const noexcept;
  void discard(Block block) const noexcept;

  static std::atomic<PinnedWindows*> made_;

  const int file_;
  const std::uintptr_t begin_;  // of the program's window; the device's follows
  const std::size_t bytes_;     // of each window
  Mutex mutex_;
  RangeAllocator ranges_ OPENREG_GUARDED_BY(mutex_);
  std::vector<Block> sorted_ OPENREG_GUARDED_BY(mutex_);
  SignalSafeSnapshot<std::vector<Block>> blocks_;  // replaced with the lock held
  std::unordered_map<std::uintptr_t, std::size_t> used_ OPENREG_GUARDED_BY(mutex_);  // by begin
};

}  // namespace openreg::memory
