#pragma once

#include <cstddef>

namespace openreg::backend {

/// The numbers in the message of an OutOfMemoryError, in bytes.
struct MemoryShortage {
  int device = 0;
  std::size_t wanted = 0;
  std::size_t capacity = 0;  ///< of the device
  std::size_t limit = 0;     ///< what this process may use of it
  std::size_t allocated = 0;
  std::size_t cached = 0;  ///< in blocks that do not fit
  std::size_t free = 0;
};

}  // namespace openreg::backend
