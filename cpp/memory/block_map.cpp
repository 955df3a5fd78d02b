#include "memory/block_map.h"

#include <new>

namespace openreg::memory {

// A window may have terabytes: the zeroes of calloc() take no memory until they are touched.
void BlockMap::cover(std::uintptr_t begin, std::size_t bytes) {
  const std::size_t leaves = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  leaves_.reset(static_cast<Leaf**>(std::calloc(leaves, sizeof(void*))));
  if (leaves_ == nullptr) throw std::bad_alloc();
  begin_ = begin;
  bytes_ = bytes;
}

BlockMap::~BlockMap() {
  for (std::size_t i = 0; i * kSegmentBytes < bytes_; ++i) delete leaves_[i];
}

}  // namespace openreg::memory
