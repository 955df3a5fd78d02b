#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <vector>

namespace openreg::ops {

/// CPU tensors over memory that they do not own, for the commands that a thread runs one after
/// another: making and freeing one takes longer than a kernel of a few elements. Used by one
/// thread.
class TensorPool {
 public:
  TensorPool() { free_.reserve(kMost); }

  /// The calling thread's pool; null if the thread is ending.
  static TensorPool* of_thread();

  /// A tensor with a storage of its own, and any sizes.
  at::Tensor make(void* data, std::size_t nbytes, c10::ScalarType dtype);
  /// Takes a tensor that a command no longer needs. It is destroyed if something else refers to it
  /// or to its storage, or if it is not as make() returned it.
  void take_back(at::Tensor tensor) noexcept;

 private:
  static constexpr std::size_t kMost = 16384;

  std::vector<at::Tensor> free_;
};

/// Like TensorPool::make(), of the calling thread if it has one.
at::Tensor make_tensor_over(void* data, std::size_t nbytes, c10::ScalarType dtype);

}  // namespace openreg::ops
