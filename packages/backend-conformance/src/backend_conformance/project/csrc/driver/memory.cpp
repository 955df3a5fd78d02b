#include "driver/memory.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

namespace torch_acme::driver {

namespace {

constexpr std::size_t kTotal = kDevices * kBytesPerDevice;

std::byte* reserve(int protection) {
  void* const memory =
      mmap(nullptr, kTotal, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

// Two ranges of the same size: the addresses that programs see, and the bytes. Made at first use,
// and never destroyed, because tensors may outlive static objects.
struct Ranges {
  std::byte* const addresses = reserve(PROT_NONE);
  std::byte* const bytes = reserve(PROT_READ | PROT_WRITE);
  std::mutex mutex;
  std::array<std::map<std::uintptr_t, std::size_t>, kDevices> free;  // offset to length
  std::map<std::uintptr_t, std::size_t> used;

  Ranges() {
    for (int i = 0; i < kDevices; ++i) free[i][i * kBytesPerDevice] = kBytesPerDevice;
  }
};

Ranges& ranges() {
  static auto& instance = *new Ranges;
  return instance;
}

std::uintptr_t offset_of(const void* address) {
  return static_cast<std::uintptr_t>(static_cast<const std::byte*>(address) - ranges().addresses);
}

// Gives the system the pages that lie in the range as a whole; the others have bytes of neighbours.
void return_pages(std::uintptr_t offset, std::size_t length) {
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (offset + kPage - 1) / kPage * kPage;
  const auto end = (offset + length) / kPage * kPage;
  if (begin < end) madvise(ranges().bytes + begin, end - begin, MADV_DONTNEED);
}

}  // namespace

void* allocate(int device, std::size_t bytes) {
  auto& all = ranges();
  const std::lock_guard lock(all.mutex);
  auto& free = all.free[device];
  for (auto it = free.begin(); it != free.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < bytes) continue;
    free.erase(it);
    if (length > bytes) free[offset + bytes] = length - bytes;
    all.used[offset] = bytes;
    return all.addresses + offset;
  }
  return nullptr;
}

void free(void* memory) {
  auto& all = ranges();
  const std::lock_guard lock(all.mutex);
  const auto used = all.used.find(offset_of(memory));
  auto [offset, length] = *used;
  all.used.erase(used);
  return_pages(offset, length);
  auto& free = all.free[offset / kBytesPerDevice];
  auto next = free.lower_bound(offset);
  if (next != free.end() && offset + length == next->first) {
    length += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    if (const auto previous = std::prev(next); previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  free[offset] = length;
}

void* bytes_of(const void* address) {
  return address == nullptr ? nullptr : ranges().bytes + offset_of(address);
}

int device_of(const void* address) noexcept {
  const auto offset = offset_of(address);
  return offset < kTotal ? static_cast<int>(offset / kBytesPerDevice) : -1;
}

std::size_t free_bytes(int device) {
  auto& all = ranges();
  const std::lock_guard lock(all.mutex);
  std::size_t sum = 0;
  for (const auto& [offset, length] : all.free[device]) sum += length;
  return sum;
}

}  // namespace torch_acme::driver
