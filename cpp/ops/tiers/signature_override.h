#pragma once

#include "ops/tiers/structured_outputs.h"

namespace openreg::ops {

/// What operators of a signature do before they are called like all others. This one: nothing.
template <class Signature>
struct OwnWay {
  /// Whether the call has been answered, without a plan.
  template <class Outputs, class... A>
  static constexpr bool answers(Form, Outputs&, const A&...) {
    return false;
  }
  /// An argument as a signature can tell it from others, given all arguments.
  template <class T, class... All>
  static constexpr const T& argument(const T& argument, const All&...) {
    return argument;
  }
};

}  // namespace openreg::ops
