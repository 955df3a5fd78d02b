#pragma once

#include "ops/launch/call_plan.h"
#include "ops/tiers/boxed_operator.h"

namespace openreg::ops {

/// Plans a call by running the CPU's kernel. See Note [Tier 2] in boxed_plan.cpp. `arguments` are
/// the arguments of the call, and `writer` has written them.
CallPlan plan_boxed(const BoxedOperator& op, ArgumentWriter& writer,
                    BoxedOperator::Arguments arguments);

}  // namespace openreg::ops
