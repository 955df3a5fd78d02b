#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstddef>

#include "slot.h"

namespace openreg::backend {

/// PyTorch's interface to the device of this slot.
class SlotHooks : public at::PrivateUse1HooksInterface {
 public:
  /// UntypedStorage.resize_(), by which FSDP frees and refills storages.
  virtual void resize_bytes(const c10::Storage& storage, std::size_t bytes) const = 0;

 private:
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const final {
    resize_bytes(storage, bytes);
  }
};

/// From here on PyTorch considers the device registered. It keeps the pointer.
inline void register_hooks(SlotHooks& hooks) { at::RegisterPrivateUse1HooksInterface(&hooks); }

/// What torch.save and torch.load call for flags that users attach to tensors.
inline void register_tensor_metadata(const torch::jit::BackendMetaPtr& get,
                                     const torch::jit::BackendMetaPtr& set) {
  torch::jit::TensorBackendMetaRegistry(kDeviceType, get, set);
}

/// How torch.autograd.profiler records events without Kineto. PyTorch keeps the pointer.
inline void register_event_profiler(torch::profiler::impl::ProfilerStubs& profiler) {
  torch::profiler::impl::registerPrivateUse1Methods(&profiler);
}

}  // namespace openreg::backend
