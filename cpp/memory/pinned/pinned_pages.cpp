#include "memory/pinned/pinned_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>

#include "address_space/address_space.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "memory/pinned/pinned_guard.h"
#include "memory/pinned/pinned_windows.h"
#include "runtime/process.h"

namespace openreg::memory::pinned_pages {

namespace {

constexpr int kNever = -1;
std::atomic<int> used_after{kNever};  // forks, at the first use

struct Range {
  std::size_t bytes;
  std::size_t locked;  // of these, from the beginning
  bool mapped;         // by map()
};

struct Ranges {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, Range> by_begin;
  Stat locked_bytes;
};

// Leaked, because destructors of static objects also free memory.
Ranges& ranges() {
  static auto& all = *new Ranges;
  return all;
}

void note_use() noexcept {
  int never = kNever;
  used_after.compare_exchange_strong(never, forks());
}

/// Whether there may be ranges, and they can be read. A query before the first use makes none, so
/// that a forked child may be the first to use pinned memory. In a child of a process that has used
/// it, the lock may be held for ever.
bool has_ranges() noexcept { return used_after == forks(); }

std::size_t page_size() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_to_pages(std::size_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

bool lock(std::byte* pages, std::size_t bytes) noexcept {
  if (::mlock(pages, bytes) == 0) return true;
  ::munlock(pages, bytes);  // if memory was short and not the limit, some pages are locked
  return false;
}

// The system locks all of a range or, beyond the limit, nothing. How much the limit still allows is
// unknown, because other parts of the process lock memory too. So this tries the whole range, else
// a half, a quarter and so on, one after another. Returns the bytes locked.
std::size_t lock_what_may_be(std::byte* pages, std::size_t bytes) noexcept {
  if (lock(pages, bytes)) return bytes;
  std::size_t locked = 0;
  for (std::size_t step = std::bit_floor(bytes - 1); step >= page_size(); step /= 2) {
    if (locked + step <= bytes && lock(pages + locked, step)) locked += step;
  }
  return locked;
}

bool machine_grants(std::size_t bytes) {
  auto* const space = AddressSpace::get_if_reserved();
  return space != nullptr ? space->machine_grants(bytes) : bytes <= machine_left();
}

// nullptr: the system refuses, or would end a process for what it cannot hold.
void* take_pages(std::size_t bytes) {
  if (!machine_grants(bytes)) return nullptr;
  auto* const windows = PinnedGuard::get() != nullptr ? PinnedWindows::get() : nullptr;
  if (auto* const pages = windows != nullptr ? windows->map(bytes) : nullptr) return pages;
  auto* const pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void return_pages(void* pages, std::size_t bytes) noexcept {
  auto* const windows = PinnedWindows::get_if_made();
  if (windows == nullptr || !windows->unmap(pages)) ::munmap(pages, bytes);
}

}  // namespace

std::size_t machine_left() {
  if (const auto* const space = AddressSpace::get_if_reserved()) return space->machine_left();
  return host_memory_left().value_or(std::numeric_limits<std::size_t>::max());
}

bool in_use() noexcept { return used_after != kNever; }

bool in_bad_fork() noexcept { return in_use() && used_after != forks(); }

void check_usable() {
  if (in_bad_fork()) {
    throw Error(
        "openreg: pinned memory cannot be used in a forked child of a process that has used it; "
        "use the spawn start method");
  }
}

void* map(std::size_t bytes) {
  auto& all = ranges();
  check_usable();
  note_use();
  const std::size_t size = round_to_pages(bytes);
  void* const pages = take_pages(size);
  if (pages == nullptr) throw std::bad_alloc();
  const std::size_t locked = lock_what_may_be(static_cast<std::byte*>(pages), size);
  try {
    const std::unique_lock lock(all.mutex);
    all.by_begin[reinterpret_cast<std::uintptr_t>(pages)] = {
        .bytes = size, .locked = locked, .mapped = true};
    all.locked_bytes.add(locked);
  } catch (...) {
    return_pages(pages, size);
    throw;
  }
  return pages;
}

void unmap(void* pages) noexcept {
  if (!has_ranges()) return;
  auto& all = ranges();
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_begin.find(reinterpret_cast<std::uintptr_t>(pages));
  if (found == all.by_begin.end() || !found->second.mapped) return;
  return_pages(pages, found->second.bytes);
  all.locked_bytes.remove(found->second.locked);
  all.by_begin.erase(found);
}

void add(void* memory, std::size_t bytes) {
  auto& all = ranges();
  check_usable();
  note_use();
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::unique_lock lock(all.mutex);
  const auto after = all.by_begin.lower_bound(begin + bytes);
  if (after != all.by_begin.begin()) {
    const auto& [other, range] = *std::prev(after);
    if (other + range.bytes > begin) {
      throw Error("openreg: host memory cannot be pinned twice (got " + std::to_string(bytes) +
                  " bytes, of which a part is pinned already); unpin it first");
    }
  }
  auto& range = all.by_begin[begin];
  range = {.bytes = bytes,
           .locked = lock_what_may_be(static_cast<std::byte*>(memory), bytes),
           .mapped = false};
  all.locked_bytes.add(range.locked);
}

bool remove(void* memory) noexcept {
  if (!has_ranges()) return false;
  auto& all = ranges();
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_begin.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == all.by_begin.end() || found->second.mapped) return false;
  ::munlock(memory, found->second.bytes);
  all.locked_bytes.remove(found->second.locked);
  all.by_begin.erase(found);
  return true;
}

void* begin_of(const void* p) noexcept {
  if (!has_ranges()) return nullptr;
  auto& all = ranges();
  const std::shared_lock lock(all.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto after = all.by_begin.upper_bound(address);
  if (after == all.by_begin.begin()) return nullptr;
  const auto& [begin, range] = *std::prev(after);
  return address - begin < range.bytes ? reinterpret_cast<void*>(begin) : nullptr;
}

std::uintptr_t device_address(std::uintptr_t p) noexcept {
  const auto* const windows = PinnedWindows::get_if_made();
  return windows == nullptr ? p : windows->device_address(p);
}

Stat locked_bytes() {
  if (!has_ranges()) return {};
  auto& all = ranges();
  const std::shared_lock lock(all.mutex);
  return all.locked_bytes;
}

void reset_accumulated_locked_bytes() {
  if (!has_ranges()) return;
  auto& all = ranges();
  const std::unique_lock lock(all.mutex);
  all.locked_bytes.allocated = all.locked_bytes.freed = 0;
}

void reset_peak_locked_bytes() {
  if (!has_ranges()) return;
  auto& all = ranges();
  const std::unique_lock lock(all.mutex);
  all.locked_bytes.peak = all.locked_bytes.current;
}

}  // namespace openreg::memory::pinned_pages
