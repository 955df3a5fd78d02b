#include "backend/race_detection.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <exception>
#include <optional>

#include "backend/exception.h"
#include "backend/host_allocator.h"
#include "base/launch_site.h"
#include "base/once.h"
#include "base/settings.h"
#include "memory/device_heap.h"
#include "memory/pinned/pinned_guard.h"
#include "runtime/process.h"
#include "runtime/stream.h"

namespace openreg::backend {

namespace {

std::atomic<void (*)(const std::string&)> g_throw{nullptr};

// Tensors that are older than the detector: their memory may be freed, and used again, under it.
void note_allocations() {
  auto* const detector = memory::RaceDetector::get();
  if (!detector || !is_initialized()) return;
  for (int device = 0; device < settings().devices; ++device) {
    auto& heap = memory::device_heap(device);
    heap.locked([&](memory::Heap& inner) {
      for (const auto& segment : inner.segments()) {
        for (const auto& block : segment.blocks) {
          if (block.state != memory::Block::State::kHeld) continue;
          const auto* const address = reinterpret_cast<const void*>(block.address);
          detector->allocated(address, block.requested, *segment.stream, 0);
          for (auto* const user : inner.streams_of(address))
            detector->used_by_stream(address, *user);
        }
      }
    });
  }
}

// The detector and what it needs of pinned memory.
void switch_to(RaceDetectionMode mode) {
  const bool on = mode != RaceDetectionMode::kOff;
  const bool was_on = memory::RaceDetector::mode() != RaceDetectionMode::kOff;
  enable_launch_sites(on);
  if (!on) guard_pinned_memory(std::nullopt);
  memory::RaceDetector::set_mode(mode);
  if (on && !was_on) note_allocations();
  if (on) {
    guard_pinned_memory(mode == RaceDetectionMode::kWarn ? memory::PinnedGuard::Reaction::kWarn
                                                         : memory::PinnedGuard::Reaction::kRaise);
  }
}

}  // namespace

void set_race_detection_mode(RaceDetectionMode mode) {
  translate_errors([&] {
    check_usable();
    start_race_detection_if_enabled();  // so that it does not happen later
    if (is_initialized()) {
      for (int device = 0; device < settings().devices; ++device) drain_device(device);
    }
    switch_to(mode);
  });
}

void start_race_detection_if_enabled() {
  static const Once once([] {
    const auto mode = settings().detect_races;
    if (mode != RaceDetectionMode::kOff) switch_to(mode);
  });
}

RaceDetectionMode race_detection_mode() {
  translate_errors([] { start_race_detection_if_enabled(); });
  return memory::RaceDetector::mode();
}

const char* dtype_name(c10::ScalarType dtype) {
  constexpr auto kDtypes = static_cast<std::size_t>(c10::ScalarType::NumOptions);
  static const auto& names = *new std::array<std::string, kDtypes>([] {
    std::array<std::string, kDtypes> all;
    for (std::size_t i = 0; i < kDtypes; ++i) {
      const auto each = static_cast<c10::ScalarType>(i);
      try {
        all[i] = c10::getDtypeNames(each).first;
      } catch (const std::exception&) {  // Undefined, and those that Python has no name for
        all[i] = c10::toString(each);
      }
    }
    return all;
  }());
  return names[static_cast<std::size_t>(dtype)].c_str();
}

memory::MemoryUse use_of(const at::TensorBase& tensor, bool writes) {
  const auto* const storage = static_cast<const std::byte*>(tensor.storage().data());
  const auto itemsize = tensor.itemsize();
  memory::MemoryUse use{.storage = storage,
                        .storage_bytes = tensor.storage().nbytes(),
                        .footprint = {storage, tensor.storage().nbytes()},
                        .writes = writes,
                        .itemsize = static_cast<std::uint16_t>(itemsize),
                        .dtype = dtype_name(tensor.scalar_type())};
  if (tensor.unsafeGetTensorImpl()->key_set().has_any(
          c10::DispatchKeySet(c10::DispatchKey::NestedTensor)) ||
      tensor.layout() != at::kStrided)
    return use;  // all of its storage
  const auto offset = static_cast<std::size_t>(tensor.storage_offset()) * itemsize;
  use.footprint = {storage + offset, itemsize, tensor.sizes(), tensor.strides()};
  use.sizes = tensor.sizes();
  use.strides = tensor.strides();
  return use;
}

void set_race_error(void (*throw_it)(const std::string& message)) noexcept {
  g_throw.store(throw_it, std::memory_order_release);
}

void throw_race_error(const memory::RaceError& error) {
  if (auto* const throw_it = g_throw.load(std::memory_order_acquire)) throw_it(error.what());
  TORCH_CHECK(false, error.what());
}

}  // namespace openreg::backend
