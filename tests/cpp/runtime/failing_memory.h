#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace openreg::testing {

/// While it exists, the calling thread's allocations succeed as often as is said, and then throw
/// std::bad_alloc. This header replaces the program's operator new: only one source may include it.
class FailingMemory {
 public:
  explicit FailingMemory(int successes = 0) { left_ = successes; }
  ~FailingMemory() { left_ = kUnlimited; }
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  static void* allocate(std::size_t bytes) {
    if (left_ != kUnlimited && --left_ < 0) {
      left_ = 0;
      throw std::bad_alloc();
    }
    if (void* const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
  }

 private:
  static constexpr int kUnlimited = -1;
  static inline thread_local constinit int left_ = kUnlimited;
};

}  // namespace openreg::testing

// Not inlined: GCC would see memory of operator new go to free(), and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return openreg::testing::FailingMemory::allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
