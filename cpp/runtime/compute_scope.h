#pragma once

#include "runtime/callbacks.h"
#include "runtime/command.h"

namespace openreg {

/// Gives a command the number of threads that it needs, if its runner has another one.
class ComputeScope {
 public:
  ComputeScope(const Callbacks& callbacks, Cost cost, bool engine)
      : callbacks_(callbacks.begin_compute && (cost.is_long() || cost.reproducible) ? &callbacks
                                                                                    : nullptr) {
    if (callbacks_) team_ = callbacks_->begin_compute(cost, engine);
  }
  ~ComputeScope() {
    if (callbacks_ && callbacks_->end_compute) callbacks_->end_compute(team_);
  }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  const Callbacks* const callbacks_;
  Callbacks::Team team_{};
};

}  // namespace openreg
