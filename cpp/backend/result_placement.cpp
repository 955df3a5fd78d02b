#include "backend/result_placement.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/stream.h"
#include "base/once.h"
#include "memory/device_heap.h"

namespace openreg::backend {

namespace {

constinit thread_local AllocationLog* t_log = nullptr;
constinit thread_local ResultPlacement* t_placement = nullptr;
constinit thread_local DeviceMemoryLimit* t_room = nullptr;

}  // namespace

/// PyTorch's CPU allocator, except for threads that run such a kernel.
class ServingAllocator final : public c10::Allocator {
 public:
  /// Takes the place of the CPU's allocator at first need. Other threads may allocate during the
  /// exchange, which c10 does not synchronise: so the object exists from when the library is
  /// loaded.
  static void install() {
    static const Once once([] {
      instance_.beneath_.store(c10::GetCPUAllocator(), std::memory_order_release);
      c10::SetCPUAllocator(&instance_);
    });
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (t_placement != nullptr) {
      const auto number = t_placement->next_++;
      for (const auto& place : t_placement->places_) {
        // The kernel may allocate differently than in the probe (with another number of threads,
        // for example), so this can be raw memory, such as oneDNN's, whose context is the address.
        if (place.allocation == number && place.bytes == bytes)
          return {place.memory, place.memory, &keep, c10::Device(c10::kCPU)};
      }
    }
    if (t_room != nullptr) t_room->expect(bytes);
    auto memory = beneath().allocate(bytes);
    if (t_log != nullptr) t_log->addresses_.push_back(memory.get());
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    beneath().copy_data(to, from, bytes);
  }

 private:
  // Memory that was served belongs to the device's allocator.
  static void keep(void*) {}
  static void free_raw(void* address) {
    const auto* const space = AddressSpace::get_if_reserved();
    const bool served = space != nullptr && space->device_of(space->window(address)) >= 0;
    if (!served) instance_.beneath().raw_deallocate(address);
  }

  c10::Allocator& beneath() const noexcept { return *beneath_.load(std::memory_order_acquire); }

  static ServingAllocator& instance_;  // leaked: tensors are made until the process ends
  std::atomic<c10::Allocator*> beneath_{nullptr};
};

ServingAllocator& ServingAllocator::instance_ = *new ServingAllocator;

AllocationLog::AllocationLog() : outer_(std::exchange(t_log, this)) { ServingAllocator::install(); }
AllocationLog::~AllocationLog() { t_log = outer_; }

std::int32_t AllocationLog::number_of(const void* address) const {
  const auto found = std::find(addresses_.rbegin(), addresses_.rend(), address);
  if (found == addresses_.rend()) return kNone;
  return static_cast<std::int32_t>(addresses_.rend() - found) - 1;
}

ResultPlacement::ResultPlacement(std::span<const Placement> places)
    : places_(places), outer_(std::exchange(t_placement, this)) {}
ResultPlacement::~ResultPlacement() { t_placement = outer_; }

void ResultPlacement::prepare_process() { ServingAllocator::install(); }

DeviceMemoryLimit::DeviceMemoryLimit(c10::Device device)
    : device_(device), outer_(std::exchange(t_room, this)) {
  ServingAllocator::install();
}
DeviceMemoryLimit::~DeviceMemoryLimit() { t_room = outer_; }

void DeviceMemoryLimit::expect(std::size_t bytes) const {
  constexpr std::size_t kAnyMachineHas = std::size_t{1} << 20;
  if (bytes <= kAnyMachineHas || device_.is_cpu()) return;
  if (memory::device_heap(device_.index()).has_room(bytes)) return;
  deallocate_raw(allocate_raw(bytes, current_stream(device_.index())));
}

}  // namespace openreg::backend
