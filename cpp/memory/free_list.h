#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

#include "memory/block.h"

namespace openreg::memory {

/// Free blocks by size: the best fit is found, taken and put back in a few dozen instructions.
///
/// Blocks of up to kBinnedBytes lie in bins, one for each multiple of kBlockBytes, with a bit per
/// bin that is not empty and a bit per word of such bits. Larger ones lie in a tree. Of blocks of
/// one size, bins give the one that was freed last, which is the most likely to be in the
/// processor's caches; the tree gives the lowest address.
class FreeList {
 public:
  /// The smallest block of at least `bytes`, or nullptr. It stays in the list.
  Block* best_fit(std::size_t bytes) const;
  void insert(Block& block);
  void remove(Block& block);

  /// Calls f(Block&) for each block; f may not change the list.
  template <class F>
  void for_each(F f) const;

 private:
  static constexpr std::size_t kBinnedBytes = kSegmentBytes;
  static constexpr std::size_t kBins = kBinnedBytes / kBlockBytes;
  static constexpr std::size_t kWordBits = 64;
  static_assert(kBins == kWordBits * kWordBits);

  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const noexcept {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
    bool operator()(const Block* a, std::size_t bytes) const noexcept { return a->bytes < bytes; }
  };

  static std::size_t bin_of(std::size_t bytes) { return bytes / kBlockBytes - 1; }
  static bool is_binned(const Block& block) { return block.bytes <= kBinnedBytes; }

  using Bins = std::array<Block*, kBins>;
  std::unique_ptr<Bins> bins_;  // made with the first block that needs it
  std::array<std::uint64_t, kWordBits> occupied_{};
  std::uint64_t occupied_words_ = 0;
  std::set<Block*, BySize> tree_;
};

template <class F>
void FreeList::for_each(F f) const {
  for (std::uint64_t words = occupied_words_; words != 0; words &= words - 1) {
    const auto word = static_cast<std::size_t>(std::countr_zero(words));
    for (std::uint64_t bits = occupied_[word]; bits != 0; bits &= bits - 1) {
      const auto bin = word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
      for (Block* block = (*bins_)[bin]; block != nullptr; block = block->next) f(*block);
    }
  }
  for (Block* block : tree_) f(*block);
}

}  // namespace openreg::memory
