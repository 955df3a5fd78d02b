#include "distributed/gloo_reduction.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace openreg::distributed {

namespace {

// Another dtype for those that Gloo cannot sum: a wider one, or one of as many bits with the same
// sums, products and bitwise operations.
c10::ScalarType wide(c10::ScalarType dtype) {
  if (c10::isFloat8Type(dtype)) return at::kFloat;
  switch (dtype) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
    case at::kUInt64:
      return at::kLong;
    default:
      return dtype;
  }
}

}  // namespace

Reduction::Reduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int size)
    : op_(op), dtype_(wide(dtype)), size_(size) {
  const auto reduces = [&](c10d::ReduceOp::RedOpType type) { return op.op_ == type; };
  TORCH_CHECK_TYPE(
      dtype != at::kUInt64 || !(reduces(c10d::ReduceOp::AVG) || reduces(c10d::ReduceOp::MIN) ||
                                reduces(c10d::ReduceOp::MAX)),
      "openreg: torch.uint64 does not support ReduceOp.AVG, MIN and MAX (expected torch.int64)");
  switch (op.op_) {
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(
          dtype != at::kBool,
          "openreg: torch.bool does not support ReduceOp.AVG; use ReduceOp.SUM, which is a "
          "logical or");
      if (!c10::isIntegralType(dtype, /*includeBool=*/false)) return;
      divides_ = true;
      op_ = c10d::ReduceOp::SUM;
      return;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* const factor =
          dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(factor,
                  "openreg: ReduceOp.PREMUL_SUM has no factor; make it with "
                  "torch.distributed._make_nccl_premul_sum");
      TORCH_CHECK_TYPE(
          c10::isFloatingType(dtype) || c10::isComplexType(dtype),
          "openreg: ReduceOp.PREMUL_SUM requires a floating-point or complex dtype (got ",
          c10::toString(dtype), ")");
      factor_tensor_ = factor->tensor_factor;
      if (!factor_tensor_.defined()) factor_ = factor->double_factor;
      op_ = c10d::ReduceOp::SUM;
      return;
    }
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      TORCH_CHECK_VALUE(c10::isIntegralType(dtype, /*includeBool=*/true),
                        "openreg: bitwise reductions require an integer dtype or torch.bool (got ",
                        c10::toString(dtype), ")");
      return;
    case c10d::ReduceOp::SUM:
      return;
    default:
      TORCH_CHECK_VALUE(
          !c10::isComplexType(dtype),
          "openreg: complex dtypes support ReduceOp.SUM, AVG and PREMUL_SUM only (got ",
          c10::toString(dtype), ")");
      return;
  }
}

void Reduction::before(const at::Tensor& input, Staging& staging) const {
  if (factor_) staging.before([input, factor = *factor_] { input.mul_(factor); });
  if (!factor_tensor_.defined()) return;
  staging.before([input, factor = staging.operand(factor_tensor_)] { input.mul_(factor); });
}

void Reduction::after(at::Tensor& output) const {
  if (divides_) output.div_(size_, "trunc");
}

}  // namespace openreg::distributed
