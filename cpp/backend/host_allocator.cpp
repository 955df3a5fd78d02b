#include "backend/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "backend/exception.h"
#include "backend/pinned_pages.h"
#include "backend/stream.h"
#include "runtime/event.h"
#include "runtime/process.h"

namespace openreg::backend {

namespace {

using EventPtr = std::unique_ptr<openreg::Event>;

// PyTorch's cache: sizes rounded to powers of two, a free list per size, and a block that streams
// have used (see record_event) comes back only when events recorded at its free have happened. We
// say what memory and events are.
class CachingPinnedMemory final : public at::CachingHostAllocatorImpl<c10::Stream, EventPtr> {
 public:
  std::pair<void*, void*> allocate(std::size_t bytes) override {
    return translate_errors([&] {
      check_usable();
      return CachingHostAllocatorImpl::allocate(bytes);
    });
  }

  // Called from destructors. In a forked child the cache's locks may be held by a thread that does
  // not exist there; after shutdown no event can be recorded, and none is needed.
  void free(void* block) override {
    if (pinned_pages::in_bad_fork() || is_shut_down()) return;
    try {
      CachingHostAllocatorImpl::free(block);
    } catch (const std::exception& e) {
      TORCH_WARN_ONCE("openreg: pinned memory was not reused because freeing it failed: ",
                      e.what());
    }
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  void allocate_host_memory(std::size_t bytes, void** memory) override {
    *memory = pinned_pages::map(bytes);
  }

  void free_block(at::HostBlock<c10::Stream>* block) override { pinned_pages::unmap(block->ptr_); }

  void record_stream(std::optional<std::vector<EventPtr>>& events, c10::Stream stream) override {
    auto event = std::make_unique<openreg::Event>();
    event->record(to_runtime(stream));
    events->push_back(std::move(event));
  }

  bool query_event(EventPtr& event) override { return event->query(); }

  c10::Stream get_current_stream() const override { return to_torch(current_stream()); }

  bool stream_is_capturing(c10::Stream) const override { return false; }
};

void delete_block(void* block);

struct PinnedAllocator final
    : at::CachingHostAllocatorInterface<CachingPinnedMemory, &delete_block> {};

PinnedAllocator& allocator() {
  static auto& instance = *new PinnedAllocator;
  return instance;
}

void delete_block(void* block) { allocator().free(block); }

}  // namespace

at::HostAllocator& host_allocator() { return allocator(); }

bool is_pinned(const void* p) noexcept { return pinned_pages::contain(p); }

}  // namespace openreg::backend
