#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "memory/block.h"

namespace openreg::memory {

/// Free blocks by size: finding the best fit, taking it and returning it take a few dozen
/// instructions.
///
/// Blocks of up to kBinnedBytes lie in bins, one for each multiple of kBlockBytes, with a bit per
/// bin that is not empty and a bit per word of such bits. Larger ones lie in a tree. Among blocks
/// of one size, bins return the one that was freed last, which is the most likely to be in the
/// processor's caches; the tree returns the one of the oldest of CUDA's segments, and in it the one
/// with the lowest address. With keep_order(), bins do so too, and inserting a block takes longer
/// the more free blocks have its size.
class FreeList {
 public:
  /// The list must be empty.
  void keep_order() { unordered_bytes_ = 0; }

  /// The smallest block of at least `bytes`, or nullptr. It stays in the list.
  Block* best_fit(std::size_t bytes) const {
    if (bytes <= kBinnedBytes) {
      if (Block* block = best_fit_in_bins(bin_of(bytes))) return block;
    }
    const auto found = tree_.lower_bound(bytes);
    return found == tree_.end() ? nullptr : *found;
  }
  /// With keep_order(), the block after `block`, which is in the list; nullptr if it is the last.
  Block* after(Block& block) const;
  /// The largest of the blocks of more than kBinnedBytes; nullptr if there are none.
  Block* largest() const { return tree_.empty() ? nullptr : *tree_.rbegin(); }
  /// The block before `block` among those of more than kBinnedBytes; nullptr if it is the first.
  Block* before(Block& block) const {
    const auto found = tree_.lower_bound(&block);
    return found == tree_.begin() ? nullptr : *std::prev(found);
  }
  void insert(Block& block) {
    block.bytes <= unordered_bytes_ ? insert_into_bin(block) : insert_in_order(block);
  }
  void remove(Block& block) {
    is_binned(block) ? remove_from_bin(block) : static_cast<void>(tree_.erase(&block));
  }

  /// Calls f(Block&) for each block; f must not change the list.
  template <class F>
  void for_each(F f) const;

 private:
  static constexpr std::size_t kBinnedBytes = kSegmentBytes;
  static constexpr std::size_t kBins = kBinnedBytes / kBlockBytes;
  static constexpr std::size_t kWordBits = 64;
  static_assert(kBins == kWordBits * kWordBits);

  /// Whether `a` comes before `b`, which has the same size.
  static bool is_first(const Block& a, const Block& b) noexcept {
    const auto numbers = std::pair(a.segment->number, b.segment->number);
    return numbers.first != numbers.second ? numbers.first < numbers.second : a.address < b.address;
  }
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const noexcept {
      return a->bytes != b->bytes ? a->bytes < b->bytes : is_first(*a, *b);
    }
    bool operator()(const Block* a, std::size_t bytes) const noexcept { return a->bytes < bytes; }
  };

  static std::size_t bin_of(std::size_t bytes) { return bytes / kBlockBytes - 1; }
  static bool is_binned(const Block& block) { return block.bytes <= kBinnedBytes; }

  Block* best_fit_in_bins(std::size_t first) const;
  void insert_into_bin(Block& block);
  void insert_in_order(Block& block);
  void remove_from_bin(Block& block);

  using Bins = std::array<Block*, kBins>;
  std::size_t unordered_bytes_ = kBinnedBytes;  // bins up to this size return the newest block
  std::unique_ptr<Bins> bins_;                  // made for the first block that needs it
  std::array<std::uint64_t, kWordBits> occupied_{};
  std::uint64_t occupied_words_ = 0;
  std::set<Block*, BySize> tree_;
};

inline Block* FreeList::best_fit_in_bins(std::size_t first) const {
  std::size_t word = first / kWordBits;
  std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (first % kWordBits));
  if (bits == 0) {
    // Two shifts, because a shift by all 64 bits is undefined.
    const std::uint64_t words = occupied_words_ & (~std::uint64_t{0} << word << 1);
    if (words == 0) return nullptr;
    word = static_cast<std::size_t>(std::countr_zero(words));
    bits = occupied_[word];
  }
  return (*bins_)[word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits))];
}

inline Block* FreeList::after(Block& block) const {
  if (!is_binned(block)) {
    const auto next = tree_.upper_bound(&block);
    return next == tree_.end() ? nullptr : *next;
  }
  if (block.next != nullptr) return block.next;
  const std::size_t bin = bin_of(block.bytes) + 1;
  Block* const larger = bin == kBins ? nullptr : best_fit_in_bins(bin);
  return larger == nullptr && !tree_.empty() ? *tree_.begin() : larger;
}

inline void FreeList::insert_into_bin(Block& block) {
  if (bins_ == nullptr) bins_ = std::make_unique<Bins>();
  const std::size_t bin = bin_of(block.bytes);
  Block*& first = (*bins_)[bin];
  block.previous = nullptr;
  block.next = first;
  if (first != nullptr) {
    first->previous = &block;
  } else {
    occupied_[bin / kWordBits] |= std::uint64_t{1} << (bin % kWordBits);
    occupied_words_ |= std::uint64_t{1} << (bin / kWordBits);
  }
  first = &block;
}

inline void FreeList::remove_from_bin(Block& block) {
  if (block.next != nullptr) block.next->previous = block.previous;
  if (block.previous != nullptr) {
    block.previous->next = block.next;
    return;
  }
  const std::size_t bin = bin_of(block.bytes);
  (*bins_)[bin] = block.next;
  if (block.next != nullptr) return;
  auto& word = occupied_[bin / kWordBits];
  word &= ~(std::uint64_t{1} << (bin % kWordBits));
  if (word == 0) occupied_words_ &= ~(std::uint64_t{1} << (bin / kWordBits));
}

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
