#pragma once

#include <cstddef>
#include <optional>

#include "runtime/capture.h"
#include "runtime/stream.h"

namespace openreg::ops::cuda_memory {

// Note [Workspaces of cuBLAS]
//
// PyTorch gives cuBLAS a workspace for each handle and stream: memory of the caching allocator, on
// the stream of the first product of the pair, kept until torch._C._cuda_clearCublasWorkspaces(). A
// host thread has a handle for each device while it lives, and the handles of threads that have
// ended serve later ones; so a training has two workspaces, of the main thread and of autograd's.
// The size depends on the GPU and on CUBLAS_WORKSPACE_CONFIG. cuBLASLt takes the same memory, or
// has one of its own with TORCH_CUBLASLT_UNIFIED_WORKSPACE=0. During a capture the memory comes
// from the graph's pool, and is freed with the graph. (aten/src/ATen/cuda/CublasHandlePool.cpp,
// CUDAGraph.cpp)

/// Which of the two libraries computes a product.
enum class BlasLibrary : bool { kCublas, kCublasLt };

/// The calling thread is about to launch a product on the stream: allocates its workspace if it has
/// none. Throws as backend::allocate_for() does.
void use_blas_workspace(Stream& stream, BlasLibrary library = BlasLibrary::kCublas);

/// Frees all workspaces.
void clear_blas_workspaces();
/// Frees those that the products of a capture have allocated.
void clear_blas_workspaces_of(CaptureId capture);

/// The size of a workspace in bytes. The override is PyTorch's function of that name; none: the
/// environment's, or the default for the GPU.
std::size_t blas_workspace_bytes(BlasLibrary library);
void set_blas_workspace_bytes(BlasLibrary library, std::optional<std::size_t> bytes);

}  // namespace openreg::ops::cuda_memory
