#include "address_space/mapped_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/quantity.h"
#include "base/settings.h"

namespace openreg {

namespace {

// What the machine keeps for everything else.
std::size_t reserve_of_machine() {
  constexpr std::size_t kAlways = std::size_t{64} << 20;
  try {
    return kAlways + host_memory() / 64;
  } catch (const Error&) {  // its size is unknown
    return kAlways;
  }
}

}  // namespace

MappedMemory::MappedMemory(std::uintptr_t apertures, std::size_t bytes)
    : apertures_(apertures),
      pieces_(bytes / kPiece),
      own_(pieces_),
      foreign_(pieces_),
      opened_(pieces_),
      budget_({.left = [] { return host_memory_left(); },
               // Without computing, hardly anything of it is ever touched.
               .mapped = [this] { return computes() ? bytes_.load() : 0; },
               .untouched = [this] { return computes() ? untouched() : 0; },
               .reserve = reserve_of_machine()}) {}

std::size_t MappedMemory::piece_of(const void* memory) const noexcept {
  return (reinterpret_cast<std::uintptr_t>(memory) - apertures_) / kPiece;
}

void* MappedMemory::begin_of(std::size_t piece) const noexcept {
  return reinterpret_cast<void*>(apertures_ + piece * kPiece);
}

// A lock for a signal handler: the thread that it interrupts does not hold it, because it uses an
// aperture.
MappedMemory::Change::Change(MappedMemory& memory) noexcept : memory_(memory) {
  while (memory_.changing_.test_and_set(std::memory_order_acquire)) sched_yield();
}

void MappedMemory::note_mapped(const void* memory, std::size_t bytes, Owner owner) noexcept {
  const auto first = piece_of(memory);
  if (opened_count_ != 0) opened_.set(first, bytes / kPiece, false);
  (owner == Owner::kDevice ? own_ : foreign_).set(first, bytes / kPiece, true);
  if (owner == Owner::kDevice) bytes_ += bytes;
}

void MappedMemory::note_unmapped(const void* memory, std::size_t bytes, Owner owner) noexcept {
  (owner == Owner::kDevice ? own_ : foreign_).set(piece_of(memory), bytes / kPiece, false);
  if (owner == Owner::kDevice) bytes_ -= bytes;
}

MappedMemory::OpenResult MappedMemory::open(const void* address, bool writes) noexcept {
  const auto piece = piece_of(address);
  if (piece >= pieces_) return OpenResult::kRefused;
  const Change change(*this);
  if (is_mapped(piece)) return OpenResult::kWasMapped;
  if (writes && writable_ == kMostWritable) return OpenResult::kRefused;
  if (mprotect(begin_of(piece), kPiece, writes ? PROT_READ | PROT_WRITE : PROT_READ) != 0)
    return OpenResult::kRefused;
  if (!opened_.contains(piece)) ++opened_count_;
  if (writes) ++writable_;
  opened_.set(piece, 1, true);
  return OpenResult::kOpened;
}

void MappedMemory::close_opened() noexcept {
  const Change change(*this);
  if (opened_count_ == 0) return;
  opened_.for_each([this](std::size_t piece) {
    mmap(begin_of(piece), kPiece, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    opened_.set(piece, 1, false);
  });
  opened_count_ = 0;
  writable_ = 0;
}

// The kernel says for each page whether it is there. What it has moved to swap is not.
std::size_t MappedMemory::untouched() const {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kMostPieces = 32;  // of one question
  std::vector<unsigned char> pages(kMostPieces * kPiece / page);
  std::size_t bytes = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  const auto ask = [&] {
    void* const begin = begin_of(first);
    if (count == 0 || mincore(begin, count * kPiece, pages.data()) != 0) return;
    const auto end = pages.begin() + static_cast<std::ptrdiff_t>(count * kPiece / page);
    const auto absent =
        std::count_if(pages.begin(), end, [](unsigned char each) { return (each & 1) == 0; });
    bytes += static_cast<std::size_t>(absent) * page;
  };
  own_.for_each([&](std::size_t piece) {
    if (piece != first + count || count == kMostPieces) {
      ask();
      first = piece;
      count = 0;
    }
    ++count;
  });
  ask();
  return bytes;
}

// The machine may have less memory than a device: that is allowed, because only the memory in use
// is taken from it, but it is rarely meant.
void report_capacity_beyond_machine(std::size_t capacity) {
  try {
    if (capacity <= host_memory()) return;
    std::fprintf(stderr,
                 "openreg: TORCH_OPENREG_MEMORY is %s per device, but the machine or the process's "
                 "control group has %s; allocations beyond that raise torch.OutOfMemoryError\n",
                 format_size(capacity).c_str(), format_size(host_memory()).c_str());
  } catch (const Error&) {  // its size is unknown
    return;
  }
}

}  // namespace openreg
