#pragma once

#include "slot/memory_shortage.h"
#include "slot/torch_version.h"

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <string>

#include "base/device_name.h"
#include "base/quantity.h"

// The slot of PyTorch that the device takes. All that names it is in this folder.

namespace openreg::backend {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kDispatchKey = c10::DispatchKey::PrivateUse1;
inline constexpr c10::BackendComponent kBackendBit = c10::BackendComponent::PrivateUse1Bit;

/// How the message of an OutOfMemoryError begins. Libraries that try again with a smaller batch
/// look for " out of memory.", as in CUDA's message.
inline std::string out_of_memory(const MemoryShortage& shortage) {
  std::string text = device_name(shortage.device) + " is out of memory. Tried to allocate " +
                     format_size(shortage.wanted) + "; the device has " +
                     format_size(shortage.capacity);
  if (shortage.limit < shortage.capacity)
    text += ", of which this process may use " + format_size(shortage.limit);
  return text + ": " + format_size(shortage.allocated) + " are in use by tensors, " +
         format_size(shortage.cached) + " are cached in blocks that do not fit, " +
         format_size(shortage.free) + " are free.";
}

/// Whether PyTorch has c10d::allreduce_ for sparse tensors of the device.
inline constexpr bool kHasSparseAllreduce = false;

/// Operators on quantized tensors for which this folder has kernels: none.
inline constexpr const char* kQuantizedOperators = "";

/// Whether a device is an openreg device, or a tensor lies on one.
template <class T>
bool is_openreg(const T& device_or_tensor) {
  return device_or_tensor.is_privateuseone();
}

}  // namespace openreg::backend

/// TORCH_LIBRARY_IMPL for the kernels of strided tensors on the device.
#define OPENREG_LIBRARY_IMPL(ns, m) TORCH_LIBRARY_IMPL(ns, PrivateUse1, m)
/// TORCH_LIBRARY_IMPL for the device's kernels of another kind: Sparse, SparseCsr, NestedTensor,
/// Quantized, Autocast, Autograd.
#define OPENREG_LIBRARY_IMPL_FOR(kind, ns, m) TORCH_LIBRARY_IMPL(ns, kind##PrivateUse1, m)
/// In namespace at::native: the device's kernel behind a stub of ATen's.
#define OPENREG_REGISTER_DISPATCH(stub, kernel) REGISTER_PRIVATEUSE1_DISPATCH(stub, kernel)
/// In namespace at: the class of the device's graphs, by the device's name in capitals.
#define OPENREG_REGISTER_GRAPH_IMPL(type) REGISTER_GRAPH_IMPL(OPENREG, type)
