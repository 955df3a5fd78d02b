#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "slot.h"

namespace openreg::backend {

/// PyTorch's interface to the device of this slot. Without members: see register_hooks().
class SlotHooks : public at::CUDAHooksInterface {
 public:
  /// UntypedStorage.resize_(), which Python calls: in a build without CUDA, PyTorch cannot.
  virtual void resize_bytes(const c10::Storage& storage, std::size_t bytes) const = 0;

  bool hasCUDA() const override { return true; }
  int getNumGPUs() const override { return deviceCount(); }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  at::Allocator* getCUDADeviceAllocator() const override;
  void deviceSynchronize(c10::DeviceIndex device) const override;
  std::string showConfig() const override;

  // Libraries that programs choose between (torch.backends.cuda.preferred_linalg_library). The
  // CPU's kernels stand for all.
  bool hasMAGMA() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }

  // No plans of transforms are kept. The largest number of them can be read back.
  std::int64_t cuFFTGetPlanCacheMaxSize(c10::DeviceIndex device) const override;
  void cuFFTSetPlanCacheMaxSize(c10::DeviceIndex device, std::int64_t size) const override;
  std::int64_t cuFFTGetPlanCacheSize(c10::DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(c10::DeviceIndex) const override {}
};

/// From here on PyTorch considers the device registered. Throws if this torch has CUDA.
void register_hooks(const SlotHooks& hooks);

/// PyTorch keeps flags of tensors for the other slot only.
template <class Get, class Set>
void register_tensor_metadata(Get, Set) {}

/// How torch.autograd.profiler records events without Kineto. PyTorch keeps the pointer.
inline void register_event_profiler(torch::profiler::impl::ProfilerStubs& profiler) {
  torch::profiler::impl::registerCUDAMethods(&profiler);
}

}  // namespace openreg::backend
