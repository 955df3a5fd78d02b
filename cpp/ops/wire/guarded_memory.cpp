#include "ops/wire/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/round_up.h"

namespace openreg::ops {

namespace {

constexpr std::byte kUnwritten{0xA5};

void expect_unwritten(const std::byte* begin, const std::byte* end) {
  if (std::all_of(begin, end, [](std::byte each) { return each == kUnwritten; })) return;
  std::fputs("openreg: a kernel wrote out of the bounds of a tensor\n", stderr);
  std::abort();
}

}  // namespace

std::shared_ptr<void> make_guarded_memory(std::size_t bytes, std::size_t alignment) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto aligned = round_up(bytes, alignment);
  const auto inner = round_up(aligned, page);
  const auto all = page + inner + page;
  auto* const mapping =
      ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapping) + page;
  if (inner > 0 && ::mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(mapping, all);
    throw std::bad_alloc();
  }
  auto* const end = begin + inner;
  auto* const memory = end - aligned;
  std::fill(begin, memory, kUnwritten);
  std::fill(memory + bytes, end, kUnwritten);
  return {memory, [=](std::byte* /*memory*/) {
            expect_unwritten(begin, memory);
            expect_unwritten(memory + bytes, end);
            ::munmap(mapping, all);
          }};
}

}  // namespace openreg::ops
