#pragma once

#include "ops/launch/call_plan.h"

namespace openreg::ops {

/// The plans of the process. Bounded: those that have not been used for longest go. Each thread has
/// the plans that it used last at hand, and finds them without a lock. Thread safe.
class PlanCache {
 public:
  /// Plans that are kept at the most.
  static constexpr std::size_t kMost = 16384;

  /// Null if there is none.
  static PlanPtr find(const SignatureView& signature);
  /// Keeps a plan; of two threads that plan the same, the first one's is kept.
  static PlanPtr insert(const SignatureView& signature, CallPlan plan);
  /// How many there are.
  static std::size_t size();
  /// Forgets all, for tests.
  static void clear();
};

}  // namespace openreg::ops
