#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "memory/block.h"

namespace openreg::memory {

/// Maps addresses of the device's window to the blocks that begin there. A table of two levels: a
/// lookup is two loads, and addresses outside the window are recognised. Entries take memory only
/// where blocks begin.
class BlockMap {
 public:
  BlockMap() = default;
  ~BlockMap() {
    for (std::size_t i = 0; i * kSegmentBytes < bytes_; ++i) delete leaves_[i];
  }
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  /// Sets the range of addresses, which begins at `begin`, a multiple of kSegmentBytes. Called
  /// once.
  void cover(std::uintptr_t begin, std::size_t bytes) {
    // A window may have terabytes: the zeroes of calloc() take no memory until they are touched.
    const std::size_t leaves = (bytes + kSegmentBytes - 1) / kSegmentBytes;
    leaves_.reset(static_cast<Leaf**>(std::calloc(leaves, sizeof(void*))));
    if (leaves_ == nullptr) throw std::bad_alloc();
    begin_ = begin;
    bytes_ = bytes;
  }
  bool covers_something() const noexcept { return bytes_ != 0; }

  /// The block that was set for `address`; nullptr if none was, or if no block can begin there.
  Block* find(const void* address) const noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - begin_;
    if (offset >= bytes_ || offset % kBlockBytes != 0) return nullptr;
    const auto* leaf = leaves_[offset / kSegmentBytes];
    return leaf == nullptr ? nullptr : leaf->blocks[offset % kSegmentBytes / kBlockBytes];
  }
  /// `address` must be in the range. nullptr removes the entry.
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
