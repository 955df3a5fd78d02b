#pragma once

#include <optional>

#include "ops/launch/call_plan.h"
#include "ops/tiers/boxed_operator.h"

namespace openreg::ops {

/// A call that is like another one, but small: it passes where the other does, and its results have
/// the same order of strides. See Note [Shape rules] in shape_rules.cpp.
class SmallerCall {
 public:
  /// Nullopt: there is no rule for the operator, or none for such arguments.
  static std::optional<SmallerCall> of(const BoxedOperator& op, BoxedOperator::Arguments arguments);

  /// CPU tensors whose elements nobody has written, and the other arguments as they are.
  const torch::jit::Stack& arguments() const { return arguments_; }

  /// Of the results of the small call, those of the other one. False: they are not as the rule
  /// says.
  bool scale(c10::SmallVectorImpl<Geometry>& results) const;

  /// A size that is free: what it is in both calls.
  struct Size {
    std::int64_t small;
    std::int64_t full;
  };

 private:
  struct ResultSize {
    std::size_t result;
    std::size_t dim;
    Size size;
  };

  torch::jit::Stack arguments_;
  std::vector<ResultSize> results_;
};

}  // namespace openreg::ops
