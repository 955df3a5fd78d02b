#pragma once

#include <optional>

#include "ops/launch/call_plan.h"
#include "ops/tiers/boxed_operator.h"

namespace openreg::ops {

/// A call that is like another one, but small: it succeeds if the other does, and its results have
/// the same order of strides. See Note [Shape rules] in shape_rules.cpp.
class SmallerCall {
 public:
  /// The smaller call for a call. Nullopt: there is no rule for the operator, or none for such
  /// arguments.
  static std::optional<SmallerCall> of(const BoxedOperator& op, BoxedOperator::Arguments arguments);

  /// CPU tensors with uninitialised elements, and the other arguments unchanged.
  const torch::jit::Stack& arguments() const { return arguments_; }

  /// Turns the results of the small call into those of the other one. False: they do not follow the
  /// rule.
  bool scale(c10::SmallVectorImpl<Geometry>& results) const;

  /// A free size, as it is in both calls.
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
