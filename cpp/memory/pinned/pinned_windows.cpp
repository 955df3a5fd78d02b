#include "memory/pinned/pinned_windows.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <system_error>

#include "address_space/anonymous_file.h"
#include "base/host_memory.h"

namespace openreg::memory {

// Note [Two windows of pinned memory]
// As with device memory (Note [Two windows] in address_space/address_space.cpp), each block
// exists twice, at a constant distance:
//
//   begin_                        begin_ + bytes_
//   | the program's window        | the device's window
//
// Here both are memory, the same pages of one file without a name, whose offsets are those in the
// windows. The program's pages can be protected, and the device still uses them.
//
// *Forks.* Pages of a file are shared with a forked child, whose writes the parent would see. So
// the child maps the blocks again, as its own copies on write, without protection. They may still
// show what the parent writes after the fork, until the child writes to the same page; memory that
// is not guarded would not. A copy of everything would cost each worker of a DataLoader as much
// memory as all pinned memory takes. The device's window is not there for a child, which cannot use
// the device.
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 30;
constexpr std::size_t kRoom = 8;  // blocks of several sizes leave gaps
constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer_to(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

void reserve_again(std::uintptr_t address, std::size_t bytes) noexcept {
  // If the kernel has no room for one more mapping, the range stays as it is until it is used
  // again.
  [[maybe_unused]] const auto* const reserved =
      ::mmap(pointer_to(address), bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
}

}  // namespace

std::atomic<PinnedWindows*> PinnedWindows::made_{nullptr};

std::uintptr_t PinnedWindows::page_size() noexcept {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

PinnedWindows::PinnedWindows(int file, std::uintptr_t begin, std::size_t bytes)
    : file_(file), begin_(begin), bytes_(bytes), ranges_(begin, bytes, page_size()) {}

// Where addresses are limited, the windows take at most half of those that are left.
PinnedWindows* PinnedWindows::make() {
  const FileSizeSignalBlock held;
  const int file = make_anonymous_file("openreg-pinned");
  const auto wanted = std::bit_ceil(host_memory()) * kRoom;
  int refused = errno;
  for (auto bytes = wanted; file >= 0 && bytes >= kSmallest; bytes /= 2) {
    const auto reserved = (bytes == wanted ? 2 : 4) * bytes;
    void* const begin = ::mmap(nullptr, reserved, PROT_NONE, kReserved, -1, 0);
    if (begin == MAP_FAILED) {
      refused = errno;
      continue;
    }
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      refused = errno;
      ::munmap(begin, reserved);
      continue;
    }
    if (reserved > 2 * bytes)
      ::munmap(static_cast<std::byte*>(begin) + 2 * bytes, reserved - 2 * bytes);
    auto* const made = new PinnedWindows(file, reinterpret_cast<std::uintptr_t>(begin), bytes);
    made_.store(made, std::memory_order_release);
    ::pthread_atfork(nullptr, nullptr, &become_private);
    return made;
  }
  if (file >= 0) ::close(file);
  std::fprintf(stderr,
               "openreg: cannot check host accesses to pinned memory: %s; raise `ulimit %s`\n",
               std::generic_category().message(refused).c_str(),
               file < 0           ? "-n"
               : refused == EFBIG ? "-f"
                                  : "-v");
  return nullptr;
}

PinnedWindows* PinnedWindows::get() {
  static PinnedWindows* const windows = make();
  return windows;
}

void PinnedWindows::become_private() noexcept {
  const auto* const windows = made_.exchange(nullptr);
  if (windows == nullptr) return;  // this process is a child itself
  const auto blocks = windows->blocks_.read();
  for (const auto [begin, end] : *blocks) {
    // If it fails, the memory stays shared, and there is no call to report that from.
    [[maybe_unused]] const auto* const mapped =
        ::mmap(pointer_to(begin), end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
               windows->file_, static_cast<off_t>(begin - windows->begin_));
  }
}

bool PinnedWindows::map_at(std::uintptr_t address, std::uintptr_t block,
                           std::size_t bytes) const noexcept {
  return ::mmap(pointer_to(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                static_cast<off_t>(block - begin_)) != MAP_FAILED;
}

void PinnedWindows::discard(Block block) const noexcept {
  const auto bytes = block.end - block.begin;
  reserve_again(block.begin, bytes);
  reserve_again(block.begin + bytes_, bytes);
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(block.begin - begin_), static_cast<off_t>(bytes));
}

void* PinnedWindows::map(std::size_t bytes) {
  // The system would refuse this much anonymous memory; of a file, it only refuses the pages.
  if (bytes > bytes_ / kRoom) return nullptr;
  const LockGuard lock(mutex_);
  const auto begin = ranges_.take(bytes, bytes_);
  if (begin == 0) return nullptr;
  const Block block{.begin = begin, .end = begin + bytes};
  if (!map_at(begin, begin, bytes) || !map_at(begin + bytes_, begin, bytes)) {
    discard(block);
    ranges_.free(begin, bytes);
    return nullptr;
  }
  ::madvise(pointer_to(begin + bytes_), bytes, MADV_DONTFORK);
  sorted_.insert(std::ranges::upper_bound(sorted_, begin, {}, &Block::begin), block);
  blocks_.replace(sorted_);
  return pointer_to(begin);
}

bool PinnedWindows::unmap(void* block) noexcept {
  const LockGuard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  const auto found = std::ranges::lower_bound(sorted_, begin, {}, &Block::begin);
  if (found == sorted_.end() || found->begin != begin) return false;
  const Block gone = *found;
  used_.erase(begin);
  sorted_.erase(found);
  blocks_.replace(sorted_);
  discard(gone);
  ranges_.free(gone.begin, gone.end - gone.begin);
  return true;
}

void PinnedWindows::set_used(const void* block, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  if (begin - begin_ >= bytes_) return;
  const LockGuard lock(mutex_);
  used_[begin] = bytes;
}

std::uintptr_t PinnedWindows::end_of_use(Block block) noexcept {
  const LockGuard lock(mutex_);
  const auto found = used_.find(block.begin);
  return found == used_.end() ? block.end : std::min(block.begin + found->second, block.end);
}

PinnedWindows::Block PinnedWindows::block_of(std::uintptr_t address) const noexcept {
  if (address - begin_ >= bytes_) return {};
  const auto blocks = blocks_.read();
  const auto after = std::ranges::upper_bound(*blocks, address, {}, &Block::begin);
  if (after == blocks->begin()) return {};
  const auto& block = *std::prev(after);
  return block.contains(address) ? block : Block{};
}

}  // namespace openreg::memory
