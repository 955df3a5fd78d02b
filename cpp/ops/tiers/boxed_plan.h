#pragma once

#include "ops/launch/call_plan.h"
#include "ops/tiers/boxed_operator.h"

namespace openreg::ops {

/// Plans a call by asking the CPU's kernel. See Note [Tier 2] in boxed_plan.cpp. `writer` has the
/// arguments, `arguments` are those of the call.
CallPlan plan_boxed(const BoxedOperator& op, ArgumentWriter& writer,
                    BoxedOperator::Arguments arguments);

}  // namespace openreg::ops
