#include "memory/free_list.h"

namespace openreg::memory {

void FreeList::insert_in_order(Block& block) {
  if (!is_binned(block)) {
    tree_.insert(&block);
    return;
  }
  Block* before = bins_ == nullptr ? nullptr : (*bins_)[bin_of(block.bytes)];
  if (before == nullptr || is_first(block, *before)) return insert_into_bin(block);
  while (before->next != nullptr && is_first(*before->next, block)) before = before->next;
  block.previous = before;
  block.next = before->next;
  if (block.next != nullptr) block.next->previous = &block;
  before->next = &block;
}

}  // namespace openreg::memory
