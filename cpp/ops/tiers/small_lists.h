#pragma once

#include "ops/tiers/boxed_operator.h"

namespace openreg::ops {

/// How an operator that changes each tensor of a list, element by element, is computed if the
/// tensors are small: PyTorch takes longer to begin with each than to compute it. An optimizer
/// counts its steps by such an operator.
enum class ListComputation : std::uint8_t {
  kNone,  // by PyTorch, one tensor after another
  /// Batched: by PyTorch, on copies that lie side by side. Its vectors have to give the same bits
  /// as its loops for single elements, as they do for the operators below.
  kBatched,
  kAdd,  // these by a loop; batched, if the second operand is scaled
  kSub,
  kMul,
  kDiv,
};

/// How the operator with this name is computed.
ListComputation list_computation(const char* op);

/// Computes a command of such an operator. False: these tensors are left to PyTorch; nothing has
/// been written.
bool compute_small_lists(const BoxedOperator& op, ListComputation computation,
                         const CommandView& command);

}  // namespace openreg::ops
