#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "distributed/gloo_operation.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// The tensors of a collective, as Gloo takes them: contiguous, and of a dtype that it knows. What
/// has to be copied for that is copied by commands of the collective's stream, which is current.
class Staging {
 public:
  explicit Staging(const Stream& stream) : stream_(stream) {}

  /// What Gloo reads. `dtype`: other than the tensor's, if given.
  at::Tensor input(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt);
  /// What Gloo writes. `own`: memory that is not the tensor's in any case.
  at::Tensor output(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);
  /// What it reads and writes.
  at::Tensor in_out(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool own = false);

  /// Something to be launched after Gloo's work, before results are copied to where they belong.
  void after(std::function<void()> launch) { after_.push_back(std::move(launch)); }
  /// Launches all of that.
  void finish();

  GlooOperation::Memory take_memory() { return std::move(memory_); }

 private:
  struct Copy {
    at::Tensor from;
    at::Tensor to;
  };
  bool fits(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) const;
  /// The stream uses the memory.
  void use(const at::Tensor& tensor);

  const Stream& stream_;
  GlooOperation::Memory memory_;
  std::vector<std::function<void()>> after_;
  std::vector<Copy> copies_;
};

}  // namespace openreg::distributed
