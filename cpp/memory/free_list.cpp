#include "memory/free_list.h"

namespace openreg::memory {

Block* FreeList::best_fit(std::size_t bytes) const {
  if (bytes <= kBinnedBytes) {
    const std::size_t first = bin_of(bytes);
    std::size_t word = first / kWordBits;
    std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (first % kWordBits));
    if (bits == 0) {
      // Twice, since a shift by all 64 bits is not defined.
      const std::uint64_t words = occupied_words_ & (~std::uint64_t{0} << word << 1);
      if (words != 0) {
        word = static_cast<std::size_t>(std::countr_zero(words));
        bits = occupied_[word];
      }
    }
    if (bits != 0) {
      return (*bins_)[word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits))];
    }
  }
  const auto found = tree_.lower_bound(bytes);
  return found == tree_.end() ? nullptr : *found;
}

void FreeList::insert(Block& block) {
  if (!is_binned(block)) {
    tree_.insert(&block);
    return;
  }
  if (bins_ == nullptr) bins_ = std::make_unique<Bins>();
  const std::size_t bin = bin_of(block.bytes);
  Block*& first = (*bins_)[bin];
  block.previous = nullptr;
  block.next = first;
  if (first != nullptr) first->previous = &block;
  first = &block;
  occupied_[bin / kWordBits] |= std::uint64_t{1} << (bin % kWordBits);
  occupied_words_ |= std::uint64_t{1} << (bin / kWordBits);
}

void FreeList::remove(Block& block) {
  if (!is_binned(block)) {
    tree_.erase(&block);
    return;
  }
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

}  // namespace openreg::memory
