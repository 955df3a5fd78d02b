#include "memory/free_list.h"

namespace openreg::memory {

Block* FreeList::best_fit_in_tree(std::size_t bytes) const {
  const auto found = tree_.lower_bound(bytes);
  return found == tree_.end() ? nullptr : *found;
}

void FreeList::insert_into_tree(Block& block) { tree_.insert(&block); }

void FreeList::remove_from_tree(Block& block) { tree_.erase(&block); }

}  // namespace openreg::memory
