#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace openreg::distributed {

/// A reduction as Gloo can do it: in which dtype, and what is to be done before and after.
class Reduction {
 public:
  /// `dtype`: of the tensors, in a group of `size`. Throws for what makes no sense.
  Reduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int size);

  c10d::ReduceOp op() const { return op_; }
  c10::ScalarType dtype() const noexcept { return dtype_; }
  /// Each rank's numbers are multiplied before, in memory that is not the caller's.
  bool scales() const noexcept { return factor_.has_value() || factor_tensor_.defined(); }
  void before(at::Tensor& input) const;
  void after(at::Tensor& output) const;

 private:
  c10d::ReduceOp op_;
  c10::ScalarType dtype_;
  int size_;
  bool divides_ = false;  // integers; Gloo does not
  std::optional<double> factor_;
  at::Tensor factor_tensor_;
};

}  // namespace openreg::distributed
