#pragma once

#include "backend/faults.h"
#include "distributed/gloo_operation.h"

namespace openreg::distributed {

/// What an operation calls instead of Gloo: it fails at once, or hangs. After a failure the group's
/// later operations fail too, because the other ranks have called Gloo and this one has not.
GlooOperation::Call injected_call(const backend::CollectiveFault& fault, GlooGroup& group);

}  // namespace openreg::distributed
