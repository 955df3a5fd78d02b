#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "distributed/staging.h"

namespace openreg::distributed {

/// A reduction in a form that Gloo supports: the dtype, and what must be done before and after.
class Reduction {
 public:
  /// `dtype` is that of the tensors, `size` that of the group. Throws for combinations without
  /// meaning.
  Reduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int size);

  c10d::ReduceOp op() const { return op_; }
  c10::ScalarType dtype() const noexcept { return dtype_; }
  /// Whether each rank's numbers are multiplied first, in memory that is not the caller's.
  bool scales() const noexcept { return factor_.has_value() || factor_tensor_.defined(); }
  /// Adds to `staging` what must be done before the reduction.
  void before(const at::Tensor& input, Staging& staging) const;
  /// Does what must be done after the reduction.
  void after(at::Tensor& output) const;

 private:
  c10d::ReduceOp op_;
  c10::ScalarType dtype_;
  int size_;
  bool divides_ = false;  // integers, which Gloo does not divide
  std::optional<double> factor_;
  at::Tensor factor_tensor_;
};

}  // namespace openreg::distributed
