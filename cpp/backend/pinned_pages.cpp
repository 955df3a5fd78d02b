#include "backend/pinned_pages.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "runtime/error.h"

namespace openreg::backend::pinned_pages {

namespace {

std::atomic<bool> forked{false};

struct Ranges {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, std::size_t> bytes_by_begin;
};

// Leaked: memory is freed from destructors of static objects too.
Ranges& ranges() {
  static auto& all = *[] {
    ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return new Ranges;
  }();
  return all;
}

std::size_t round_to_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

bool in_bad_fork() noexcept { return forked; }

void* map(std::size_t bytes) {
  auto& all = ranges();
  if (forked) {
    throw Error(
        "openreg: pinned memory cannot be used in a forked child of a process that has used it; "
        "use the spawn start method");
  }
  const std::size_t size = round_to_pages(bytes);
  void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  ::mlock(pages, size);
  const std::unique_lock lock(all.mutex);
  all.bytes_by_begin[reinterpret_cast<std::uintptr_t>(pages)] = size;
  return pages;
}

void unmap(void* pages) noexcept {
  if (forked) return;
  auto& all = ranges();
  const std::unique_lock lock(all.mutex);
  const auto found = all.bytes_by_begin.find(reinterpret_cast<std::uintptr_t>(pages));
  if (found == all.bytes_by_begin.end()) return;
  ::munmap(pages, found->second);
  all.bytes_by_begin.erase(found);
}

bool contain(const void* p) noexcept {
  // In a forked child the memory is an ordinary copy, and the lock may be held for ever.
  if (forked) return false;
  auto& all = ranges();
  const std::shared_lock lock(all.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto after = all.bytes_by_begin.upper_bound(address);
  if (after == all.bytes_by_begin.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return address - begin < bytes;
}

}  // namespace openreg::backend::pinned_pages
