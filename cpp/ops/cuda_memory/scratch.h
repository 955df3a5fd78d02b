#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "backend/allocator.h"
#include "ops/cuda_memory/blas_workspaces.h"
#include "runtime/stream.h"

namespace openreg::ops::cuda_memory {

/// Memory that CUDA's kernel of an operator uses while it runs: allocated for the operator's stream
/// in the order in which CUDA's code allocates it, and freed as CUDA's code frees it. Nothing is
/// ever written to it.
class Scratch {
 public:
  explicit Scratch(Stream& stream) : stream_(stream) {}

  /// Throws as backend::allocate_raw() does.
  [[nodiscard]] c10::DataPtr bytes(std::int64_t bytes) {
    total_ += static_cast<std::uint64_t>(bytes);
    return backend::allocate_for(stream_, static_cast<std::size_t>(bytes));
  }
  [[nodiscard]] c10::DataPtr elements(std::int64_t count, c10::ScalarType dtype) {
    return bytes(count * static_cast<std::int64_t>(c10::elementSize(dtype)));
  }
  /// A contiguous copy of a tensor.
  [[nodiscard]] c10::DataPtr copy_of(const at::Tensor& tensor) {
    return elements(tensor.numel(), tensor.scalar_type());
  }

  int device() const noexcept { return stream_.device(); }
  /// Uses cuBLAS's workspace of the calling thread and the stream.
  void use_blas_workspace() {
    uses_blas_workspace_ = true;
    cuda_memory::use_blas_workspace(stream_);
  }
  bool uses_blas_workspace() const noexcept { return uses_blas_workspace_; }
  /// What has been requested so far.
  std::uint64_t total() const noexcept { return total_; }

 private:
  Stream& stream_;
  std::uint64_t total_ = 0;
  bool uses_blas_workspace_ = false;
};

}  // namespace openreg::ops::cuda_memory
