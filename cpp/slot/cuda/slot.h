#pragma once

#include "slot/memory_shortage.h"
#include "slot/torch_version.h"

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <string>

// CUDA's slot, in a build of torch that has no CUDA.

namespace openreg::backend {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::CUDA;
inline constexpr c10::DispatchKey kDispatchKey = c10::DispatchKey::CUDA;
inline constexpr c10::BackendComponent kBackendBit = c10::BackendComponent::CUDABit;

/// How the message of an OutOfMemoryError begins. Programs look for the words of CUDA's, and read
/// its numbers.
std::string out_of_memory(const MemoryShortage& shortage);

/// Whether PyTorch has c10d::allreduce_ for sparse tensors of the device.
inline constexpr bool kHasSparseAllreduce = true;

/// Operators on quantized tensors for which this folder has kernels.
inline constexpr const char* kQuantizedOperators = "clone";

/// Whether a device is an openreg device, or a tensor lies on one.
template <class T>
bool is_openreg(const T& device_or_tensor) {
  return device_or_tensor.is_cuda();
}

}  // namespace openreg::backend

/// TORCH_LIBRARY_IMPL for the kernels of strided tensors on the device.
#define OPENREG_LIBRARY_IMPL(ns, m) TORCH_LIBRARY_IMPL(ns, CUDA, m)
/// TORCH_LIBRARY_IMPL for the device's kernels of another kind: Sparse, SparseCsr, NestedTensor,
/// Quantized, Autocast, Autograd.
#define OPENREG_LIBRARY_IMPL_FOR(kind, ns, m) TORCH_LIBRARY_IMPL(ns, kind##CUDA, m)
/// In namespace at::native: the device's kernel behind a stub of ATen's.
#define OPENREG_REGISTER_DISPATCH(stub, kernel) REGISTER_CUDA_DISPATCH(stub, kernel)
/// In namespace at: the class of the device's graphs, by the device's name in capitals.
#define OPENREG_REGISTER_GRAPH_IMPL(type) REGISTER_GRAPH_IMPL(CUDA, type)
