#include "slot_hooks.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>

namespace openreg::backend {

namespace {

constexpr std::int64_t kMostPlans = 4096;  // CUDA's default
std::atomic<std::int64_t> most_plans{kMostPlans};

}  // namespace

at::Allocator* SlotHooks::getCUDADeviceAllocator() const { return c10::GetAllocator(kDeviceType); }

void SlotHooks::deviceSynchronize(c10::DeviceIndex device) const {
  c10::impl::getDeviceGuardImpl(kDeviceType)->synchronizeDevice(device);
}

std::string SlotHooks::showConfig() const {
  return "  - CUDA emulated on the CPU by openreg-cuda\n";
}

std::int64_t SlotHooks::cuFFTGetPlanCacheMaxSize(c10::DeviceIndex) const { return most_plans; }

void SlotHooks::cuFFTSetPlanCacheMaxSize(c10::DeviceIndex, std::int64_t size) const {
  TORCH_CHECK(size >= 0, "cuFFT plan cache size must be non-negative, but got ", size);
  most_plans = size;
}

// PyTorch creates its hooks once, when they are first requested. `import torch` requests them while
// it initialises torch._C, before it loads any device, so they say that there is no CUDA. The
// object consists of a pointer to its virtual functions, which is overwritten with that of our
// hooks.
static_assert(sizeof(SlotHooks) == sizeof(void*) &&
              sizeof(at::CUDAHooksInterface) == sizeof(void*));

void register_hooks(const SlotHooks& hooks) {
  auto& kept = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  TORCH_CHECK(!kept.hasCUDA(), "openreg: this torch was built for CUDA");
  std::memcpy(static_cast<void*>(&kept), static_cast<const void*>(&hooks), sizeof(void*));
}

}  // namespace openreg::backend
