#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "memory/block.h"

namespace openreg::memory {

/// Which block begins at an address of the device's window: a table of two levels, so that a
/// lookup is two loads, and an address that is not the device's is known as such. Entries take
/// memory only where blocks begin.
class BlockMap {
 public:
  BlockMap() = default;
  ~BlockMap();
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  /// Makes the map one of addresses from `begin` (a multiple of kSegmentBytes) on; once.
  void cover(std::uintptr_t begin, std::size_t bytes);
  bool covers_something() const noexcept { return bytes_ != 0; }

  /// The block that was set for `address`; nullptr if none was, or if it cannot be a block's.
  Block* find(const void* address) const noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - begin_;
    if (offset >= bytes_ || offset % kBlockBytes != 0) return nullptr;
    const auto* leaf = leaves_[offset / kSegmentBytes];
    return leaf == nullptr ? nullptr : leaf->blocks[offset % kSegmentBytes / kBlockBytes];
  }
  /// `address` must be in the range. nullptr forgets it.
  void set(const void* address, Block* block) {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - begin_;
    auto*& leaf = leaves_[offset / kSegmentBytes];
    if (leaf == nullptr) leaf = new Leaf{};
    leaf->blocks[offset % kSegmentBytes / kBlockBytes] = block;
  }

 private:
  struct Leaf {
    Block* blocks[kSegmentBytes / kBlockBytes];
  };
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };

  std::uintptr_t begin_ = 0;
  std::size_t bytes_ = 0;
  std::unique_ptr<Leaf*[], Free> leaves_;
};

}  // namespace openreg::memory
