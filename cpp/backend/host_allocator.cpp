#include "backend/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/exception.h"
#include "backend/race_detection.h"
#include "backend/stream.h"
#include "base/quantity.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "memory/pinned/pinned_guard.h"
#include "memory/pinned/pinned_pages.h"
#include "memory/pinned/pinned_windows.h"
#include "runtime/capture.h"
#include "runtime/device_health.h"
#include "runtime/event.h"
#include "runtime/fault_table.h"
#include "runtime/process.h"
#include "runtime/stream.h"

namespace openreg::backend {

namespace pinned_pages = memory::pinned_pages;

namespace {

using EventPtr = std::unique_ptr<openreg::Event>;

bool in_bad_fork() noexcept { return openreg::in_bad_fork() || pinned_pages::in_bad_fork(); }

class Stopwatch {
 public:
  std::int64_t microseconds() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
};

// The copies that used the block have completed, and do not concern its next owner.
void note_reuse(const void* block, std::size_t bytes) {
  memory::checks::notify(&memory::CommandCheck::reused, block, bytes, memory::BlockKind::kPinned);
}

// PyTorch's cache: sizes rounded to powers of two, a free list per size, and a block that streams
// have used (see record_event) is reused only when the events recorded at its free have completed.
// This class supplies memory and events.
class CachingPinnedMemory final : public at::CachingHostAllocatorImpl<c10::Stream, EventPtr> {
 public:
  std::pair<void*, void*> allocate(std::size_t bytes) override {
    return translate_errors([&] {
      check_usable();
      pinned_pages::check_usable();  // before the cache, whose locks may be held for ever
      start_race_detection_if_enabled();
      faults::start();
      check_healthy(current_device());
      if (const auto refusal = faults::count_and_describe({.point = FaultPoint::kPin})) {
        empty_cache();
        throw_out_of_memory(bytes, *refusal);
      }
      const auto block = [&] {
        try {
          return CachingHostAllocatorImpl::allocate(bytes);
        } catch (const std::bad_alloc&) {
          empty_cache();  // blocks of other sizes
          return allocate_or_explain(bytes);
        }
      }();
      note_reuse(block.first, std::bit_ceil(bytes));
      if (auto* const windows = memory::PinnedWindows::get_if_made())
        windows->set_used(block.first, bytes);
      return block;
    });
  }

  // Called from destructors. In a forked child the cache's locks may be held by a thread that does
  // not exist there; after shutdown no event can be recorded, and none is needed.
  void free(void* block) override {
    if (in_bad_fork() || is_shut_down()) return;
    try {
      CachingHostAllocatorImpl::free(block);
    } catch (const std::exception& e) {
      TORCH_WARN_ONCE("openreg: pinned memory was not reused because freeing it failed: ",
                      e.what());
    }
  }

  // A pointer into a block is accepted: memory that comes back from NumPy or DLPack may begin
  // anywhere in it, and only its pages identify the block.
  bool record_event(void* p, void* block, c10::Stream stream) override {
    void* const begin = pinned_pages::begin_of(p);
    return begin != nullptr && CachingHostAllocatorImpl::record_event(begin, block, stream);
  }

  void empty_cache() override {
    if (!in_bad_fork()) CachingHostAllocatorImpl::empty_cache();
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  std::pair<void*, void*> allocate_or_explain(std::size_t bytes) {
    try {
      return CachingHostAllocatorImpl::allocate(bytes);
    } catch (const std::bad_alloc&) {
      throw_out_of_memory(bytes, {});
    }
  }

  [[noreturn]] void throw_out_of_memory(std::size_t bytes, const std::string& injected) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "openreg: out of host memory for a pinned tensor ",
                     "(got a request for ", format_size(bytes), ", in a block of ",
                     format_size(std::bit_ceil(bytes)), ", expected at most ",
                     format_size(pinned_pages::machine_left()),
                     ", which the machine or the process's control group has left); free pinned "
                     "tensors, which use ",
                     format_size(static_cast<std::uint64_t>(getStats().allocated_bytes.current)),
                     injected.empty() ? "" : "; ", injected);
  }

  void allocate_host_memory(std::size_t bytes, void** memory) override {
    if (is_capturing() && capture_of(current_stream()) == 0)
      expect_safe_call("an allocation of pinned memory that the cache does not serve");
    const Stopwatch watch;
    *memory = pinned_pages::map(bytes);
    const std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_alloc_time.increase(watch.microseconds());
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    const Stopwatch watch;
    note_reuse(block->ptr_, block->size_);
    pinned_pages::unmap(block->ptr_);
    const std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(watch.microseconds());
  }

  void record_stream(std::optional<std::vector<EventPtr>>& events, c10::Stream stream) override {
    auto event = std::make_unique<openreg::Event>();
    event->record_internal(to_runtime(stream));
    events->push_back(std::move(event));
  }

  bool query_event(EventPtr& event) override { return event->is_complete(); }

  c10::Stream get_current_stream() const override { return to_torch(current_stream()); }

  bool stream_is_capturing(c10::Stream stream) const override {
    return capture_of(to_runtime(stream)) != 0;
  }
};

void delete_pinned_block(void* block);

struct PinnedAllocator final
    : at::CachingHostAllocatorInterface<CachingPinnedMemory, &delete_pinned_block> {
  void reset_accumulated_stats() override {
    if (in_bad_fork()) return;
    CachingHostAllocatorInterface::reset_accumulated_stats();
    pinned_pages::reset_accumulated_locked_bytes();
  }
  void reset_peak_stats() override {
    if (in_bad_fork()) return;
    CachingHostAllocatorInterface::reset_peak_stats();
    pinned_pages::reset_peak_locked_bytes();
  }
};

PinnedAllocator& allocator() {
  static auto& instance = *new PinnedAllocator;
  return instance;
}

void delete_pinned_block(void* block) { allocator().free(block); }

}  // namespace

at::HostAllocator& host_allocator() { return allocator(); }

void guard_pinned_memory(std::optional<memory::PinnedGuard::Reaction> reaction) {
  if (!reaction) return memory::PinnedGuard::switch_off();
  memory::PinnedGuard::switch_on(*reaction);
  allocator().empty_cache();
}

bool is_pinned(const void* p) noexcept { return pinned_pages::begin_of(p) != nullptr; }

void register_pinned(void* memory, std::size_t bytes) {
  if (bytes == 0) return;
  translate_errors([&] {
    check_usable();
    pinned_pages::add(memory, bytes);
  });
}

void unregister_pinned(void* memory) {
  if (in_bad_fork()) return;
  TORCH_CHECK(pinned_pages::remove(memory),
              "openreg: this memory is not pinned, or is not the beginning of memory that was "
              "registered (got ",
              memory, ")");
  if (!is_initialized() || is_shut_down()) return;
  translate_errors([] {
    for (int device = 0; device < settings().devices; ++device) drain_device(device);
  });
}

std::optional<HostMemoryStats> host_memory_stats() {
  if (in_bad_fork() || !(is_initialized() || pinned_pages::in_use())) return std::nullopt;
  return HostMemoryStats{.blocks = allocator().get_stats(),
                         .locked_bytes = pinned_pages::locked_bytes()};
}

}  // namespace openreg::backend
