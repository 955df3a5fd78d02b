// The message of torch.OutOfMemoryError, with the words and units of CUDA's.
#include <array>
#include <cstdio>
#include <string>

#include "slot.h"

namespace openreg::backend {

namespace {

std::string size_in_words(std::size_t bytes) {
  constexpr double kKiB = 1024;
  const auto size = static_cast<double>(bytes);
  std::array<char, 40> text{};
  if (size < kKiB) {
    std::snprintf(text.data(), text.size(), "%zu bytes", bytes);
  } else if (size < kKiB * kKiB) {
    std::snprintf(text.data(), text.size(), "%.2f KiB", size / kKiB);
  } else if (size < kKiB * kKiB * kKiB) {
    std::snprintf(text.data(), text.size(), "%.2f MiB", size / kKiB / kKiB);
  } else {
    std::snprintf(text.data(), text.size(), "%.2f GiB", size / kKiB / kKiB / kKiB);
  }
  return text.data();
}

}  // namespace

std::string out_of_memory(const MemoryShortage& shortage) {
  const std::string limit = shortage.limit < shortage.capacity
                                ? size_in_words(shortage.limit) + " allowed; "
                                : std::string();
  return "CUDA out of memory. Tried to allocate " + size_in_words(shortage.wanted) + ". GPU " +
         std::to_string(shortage.device) + " has a total capacity of " +
         size_in_words(shortage.capacity) + " of which " + size_in_words(shortage.free) +
         " is free. " + limit + "Of the allocated memory " + size_in_words(shortage.allocated) +
         " is allocated by PyTorch, and " + size_in_words(shortage.cached) +
         " is reserved by PyTorch but unallocated.";
}

}  // namespace openreg::backend
