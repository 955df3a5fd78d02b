#pragma once

#include "ops/tiers/structured_outputs.h"

namespace openreg::ops {

/// Specialised for signatures whose operators differ from all others in a call. The primary
/// template changes nothing.
template <class Signature>
struct SignatureOverride {
  /// Answers the call without a plan, and returns true; false if the call goes on as others do.
  template <class Outputs, class... A>
  static constexpr bool answers(Form, Outputs&, const A&...) {
    return false;
  }
  /// Returns what replaces an argument, given all arguments, so that a signature can tell calls
  /// apart.
  template <class T, class... All>
  static constexpr const T& argument(const T& argument, const All&...) {
    return argument;
  }
};

}  // namespace openreg::ops
