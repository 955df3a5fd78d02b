#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "distributed/gloo_operation.h"
#include "memory/memory_use.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// The tensors of a collective in the form that Gloo takes: contiguous, and of a dtype that it
/// supports. The copies that this needs are commands of the collective's stream, which is current.
class Staging {
 public:
  explicit Staging(const Stream& stream) : stream_(stream) {}

  /// The tensor that Gloo reads in place of `tensor`. `dtype`: if given, to be used instead of the
  /// tensor's.
  at::Tensor input(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt);
  /// The tensor that Gloo writes in place of `tensor`. `own`: never use the tensor's own memory.
  at::Tensor output(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);
  /// The tensor that Gloo reads and writes in place of `tensor`.
  at::Tensor in_out(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);

  /// One tensor that Gloo reads, in which `tensors` of one dtype follow one another.
  at::Tensor packed_input(at::TensorList tensors);
  /// One tensor that Gloo writes, in which `tensors` of one dtype follow one another.
  at::Tensor packed_output(at::TensorList tensors);

  /// Keeps the tensor's memory until the operation has ended.
  void use(const at::Tensor& tensor);

  /// Adds something to launch after Gloo's work, before results are copied to their places.
  void after(std::function<void()> launch) { after_.push_back(std::move(launch)); }
  /// Launches what after() added, and then the copies of results.
  void finish();

  /// What Gloo itself reads and writes; collected if commands are checked.
  std::span<const openreg::memory::MemoryUse> uses() const { return uses_; }
  const GlooOperation::Memory& memory() const { return memory_; }
  GlooOperation::Memory take_memory() { return std::move(memory_); }

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };
  bool fits(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) const;
  at::Tensor room_for(at::TensorList tensors);
  const Stream& stream_;
  void note(const at::Tensor& tensor, bool writes);

  GlooOperation::Memory memory_;
  std::vector<openreg::memory::MemoryUse> uses_;
  std::vector<std::function<void()>> after_;
  std::vector<Copy> copies_;
};

}  // namespace openreg::distributed
