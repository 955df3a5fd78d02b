#pragma once

#include "memory/heap.h"

namespace openreg::memory {

// Heap's basic operations on blocks: each allocation and each free takes several of them, of a few
// instructions each. For the sources of Heap only.

inline void Heap::InactiveChange::add(const Block& block, int sign) {
  if (!block.is_part()) return;
  blocks += sign;
  bytes += sign * signed_bytes(block.bytes);
}

/// Counts one change, however many blocks were joined and split, as CUDA does.
/// CUDA does not count blocks of expandable segments.
inline void Heap::apply(const Segment& segment, InactiveChange change) {
  if (segment.is_expandable()) return;
  const auto size_class = segment.size_class;
  if (change.blocks != 0) statistics_.inactive_split.change(size_class, change.blocks);
  if (change.bytes != 0) statistics_.inactive_split_bytes.change(size_class, change.bytes);
}

inline void Heap::insert_free(Block& block) {
  block.state = Block::State::kFree;
  block.freed_at = clock_;
  block.segment->free_blocks->insert(block);
}

inline void Heap::remove_free(Block& block) { block.segment->free_blocks->remove(block); }

/// Each allocation makes and deletes blocks, so they are kept and reused.
inline Block& Heap::new_block() {
  if (spare_ == nullptr) return blocks_.emplace_back();
  Block& block = *spare_;
  spare_ = block.next;
  block.next = nullptr;
  return block;
}

inline void Heap::delete_block(Block& block) {
  block.left = block.right = block.previous = nullptr;
  block.next = spare_;
  spare_ = &block;
}

/// Shortens `block`, which is in no list, to `bytes`. Returns the rest, also in no list.
inline Block& Heap::split(Block& block, std::size_t bytes) {
  auto& rest = new_block();
  rest.address = block.address + bytes;
  rest.bytes = block.bytes - bytes;
  rest.segment = block.segment;
  rest.left = &block;
  rest.right = block.right;
  (rest.right != nullptr ? rest.right->left : rest.segment->last) = &rest;
  block.right = &rest;
  block.bytes = bytes;
  return rest;
}

/// Merges `block` and its right neighbour, neither of which is in a list.
inline void Heap::absorb_right(Block& block) {
  auto& right = *block.right;
  block.bytes += right.bytes;
  block.right = right.right;
  (block.right != nullptr ? block.right->left : block.segment->last) = &block;
  delete_block(right);
}

/// Makes a block that is in no list free, merged with its free neighbours. Returns the whole.
inline Block& Heap::merge_and_insert(Block& freed) {
  InactiveChange change;
  Block* block = &freed;
  if (auto* left = block->left; left != nullptr && left->state == Block::State::kFree) {
    change.add(*left, -1);
    remove_free(*left);
    block = left;
    absorb_right(*block);
  }
  if (auto* right = block->right; right != nullptr && right->state == Block::State::kFree) {
    change.add(*right, -1);
    remove_free(*right);
    absorb_right(*block);
  }
  insert_free(*block);
  change.add(*block, +1);
  apply(*block->segment, change);
  return *block;
}

/// The part of a free block that begins at `address`, in no list; the rest stays free.
inline Block& Heap::take_part(Block& block, std::byte* address, std::size_t bytes,
                              InactiveChange& change) {
  change.add(block, -1);
  remove_free(block);
  Block* part = &block;
  if (address > block.address) {
    part = &split(block, static_cast<std::size_t>(address - block.address));
    insert_free(block);
    change.add(block, +1);
  }
  if (part->bytes > bytes) {
    auto& rest = split(*part, bytes);
    insert_free(rest);
    change.add(rest, +1);
  }
  return *part;
}

/// Gives the program a free block that is in no list: if `splits`, `rounded` bytes of it, and the
/// rest stays free.
inline void* Heap::hold(Block& block, std::size_t rounded, std::size_t bytes, bool splits,
                        InactiveChange change, const Context& context) {
  const auto& segment = *block.segment;
  const auto size_class = segment.size_class;
  if (splits) {
    auto& rest = split(block, rounded);
    insert_free(rest);
    change.add(rest, +1);
  }
  apply(segment, change);

  block.state = Block::State::kHeld;
  block.requested = bytes;
  held_.set(block.address, &block);
  statistics_.allocation.add(size_class, 1);
  statistics_.allocated_bytes.add(size_class, signed_bytes(block.bytes));
  statistics_.requested_bytes.add(size_class, signed_bytes(bytes));
  statistics_.active.add(size_class, 1);
  statistics_.active_bytes.add(size_class, signed_bytes(block.bytes));
  if (block.is_oversize) statistics_.oversize_allocations.add(size_class, 1);
  if (history_.enabled()) {
    if (history_.options().blocks) block.context = context;
    record(Action::kAlloc, block, context);
  }
  return block.address;
}

/// Like hold(), with a block of a free list.
inline void* Heap::take(Block& block, std::size_t rounded, std::size_t bytes, bool splits,
                        const Context& context) {
  InactiveChange change;
  change.add(block, -1);
  remove_free(block);
  return hold(block, rounded, bytes, splits, change, context);
}

}  // namespace openreg::memory
