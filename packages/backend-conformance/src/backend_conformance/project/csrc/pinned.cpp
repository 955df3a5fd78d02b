// Pinned host memory. PyTorch has the cache, and asks for memory and events. Without a host
// allocator pin_memory() raises, and torch.accelerator.empty_host_cache() ends the process.
#include "pinned.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "device.h"

namespace torch_acme {

namespace {

// All blocks, for is_pinned: address to size.
struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t, std::less<>> all;
};

Blocks& blocks() {
  static auto& instance = *new Blocks;
  return instance;
}

class Cache final : public at::CachingHostAllocatorImpl<c10::Stream, driver::Event> {
 public:
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  // A real device locks the pages, so that they can be read without the CPU.
  void allocate_host_memory(std::size_t bytes, void** memory) override {
    *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (*memory == nullptr) throw std::bad_alloc();
    const std::lock_guard lock(blocks().mutex);
    blocks().all[static_cast<std::byte*>(*memory)] = bytes;
  }
  void free_block(at::HostBlock<c10::Stream>* block) override {
    {
      const std::lock_guard lock(blocks().mutex);
      blocks().all.erase(static_cast<std::byte*>(block->ptr_));
    }
    std::free(block->ptr_);
  }
  // A freed block is reused when the streams that copied from or to it have passed these events.
  void record_stream(std::optional<std::vector<driver::Event>>& events,
                     c10::Stream stream) override {
    events->emplace_back().record(to_driver(stream));
  }
  bool query_event(driver::Event& event) override { return event.query(); }
  c10::Stream get_current_stream() const override { return to_torch(current_stream(-1)); }
};

void free_pinned(void* block);

struct Allocator final : at::CachingHostAllocatorInterface<Cache, &free_pinned> {};

Allocator& instance() {
  static auto& allocator = *new Allocator;
  return allocator;
}

void free_pinned(void* block) { instance().free(block); }

[[maybe_unused]] const bool kRegistered = [] {
  at::setHostAllocator(kAcme, &instance());
  return true;
}();

}  // namespace

at::HostAllocator& pinned_allocator() { return instance(); }

bool is_pinned(const void* pointer) {
  const auto* const address = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(blocks().mutex);
  auto it = blocks().all.upper_bound(address);
  if (it == blocks().all.begin()) return false;
  --it;
  return address < it->first + it->second;
}

}  // namespace torch_acme
