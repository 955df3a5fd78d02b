// Operators that CUDA has for integers, bool or complex numbers, and the CPU has not. They are
// written in terms of others. Others are computed in a wider dtype: here, or by the tables in
// quirks.cpp.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// The result, which is also written to the last argument if the operator has one for it.
void finish(const c10::OperatorHandle& op, torch::jit::Stack* stack, const at::Tensor& result) {
  const auto count = op.schema().arguments().size();
  at::Tensor out;
  if (op.schema().overload_name() == "out") {
    out = torch::jit::peek(*stack, count - 1, count).toTensor();
    out.resize_(result.sizes()).copy_(result);
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(out.defined() ? out : result);
}

const at::Tensor& first(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  return torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
}

/// abs.out(self)
void abs(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = first(op, stack);
  if (self.scalar_type() != at::kBool) return fallback(op, stack);
  finish(op, stack, self);
}

/// trace(self)
void trace(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = first(op, stack);
  const bool is_missing = self.scalar_type() == at::kBool || self.scalar_type() == at::kComplexHalf;
  if (!is_missing || self.dim() != 2) return fallback(op, stack);
  finish(op, stack, self.diagonal().sum());
}

/// nansum(self, dim, keepdim, dtype)
void nansum(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const at::Tensor self = first(op, stack);
  if (!self.is_complex()) return fallback(op, stack);
  const auto dim = torch::jit::peek(*stack, 1, count).toOptional<std::vector<std::int64_t>>();
  const auto dtype = torch::jit::peek(*stack, 3, count).toOptional<at::ScalarType>();
  const auto numbers = at::where(at::isnan(self), at::zeros({}, self.options()), self);
  finish(op, stack,
         at::sum(numbers, dim ? at::OptionalIntArrayRef(*dim) : at::OptionalIntArrayRef(),
                 torch::jit::peek(*stack, 2, count).toBool(), dtype));
}

/// histc(self, bins, min, max) of integers, whose bins are found by integer division. What lies
/// outside is counted in one more bin, which is left out: so the host need not wait.
void histc(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const at::Tensor self = first(op, stack);
  const auto bins = torch::jit::peek(*stack, 1, count).toInt();
  auto least = torch::jit::peek(*stack, 2, count).toScalar().to<std::int64_t>();
  auto most = torch::jit::peek(*stack, 3, count).toScalar().to<std::int64_t>();
  // The fallback refuses wrong arguments as the CPU does.
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false) || bins <= 0 || least > most)
    return fallback(op, stack);
  const auto values = self.reshape(-1).to(at::kLong);
  if (least == most && values.numel() > 0) {
    least = values.min().item<std::int64_t>();
    most = values.max().item<std::int64_t>();
  }
  if (least == most) {
    --least;
    ++most;
  }
  const auto places = values.sub(least).mul_(bins).floor_divide_(most - least).clamp_max_(bins - 1);
  const auto kept = values.ge(least).logical_and_(values.le(most));
  const auto counts =
      at::zeros({bins + 1}, values.options())
          .index_add_(0, places.masked_fill_(kept.logical_not(), bins), kept.to(at::kLong));
  finish(op, stack, counts.slice(0, 0, bins).to(self.scalar_type()));
}

std::optional<at::ScalarType> wider(at::ScalarType dtype) {
  if (dtype == at::kHalf || dtype == at::kBFloat16) return at::kFloat;
  if (dtype == at::kComplexHalf) return at::kComplexFloat;
  return std::nullopt;
}

/// Half precision, which the CPU's kernels of an operator lack: the operator is called again with
/// copies in single precision, and its results are rounded.
void in_wider_dtype(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto narrow = first(op, stack).scalar_type();
  const auto wide = wider(narrow);
  if (!wide) return fallback(op, stack);
  auto rounded = narrow;  // the dtype of a result that has the wide one
  std::vector<at::Tensor> outs;
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = torch::jit::peek(*stack, i, arguments.size());
    if (arguments[i].name() == "dtype" && !argument.isNone()) {
      rounded = argument.toScalarType();
      if (rounded == narrow) argument = *wide;
    }
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor tensor = argument.toTensor();
    if (arguments[i].is_out()) {
      outs.push_back(tensor);
      argument = at::empty({0}, tensor.options().dtype(wider(tensor.scalar_type())));
    } else if (tensor.scalar_type() == narrow) {
      argument = tensor.to(*wide);
    }
  }
  op.callBoxed(*stack);
  for (std::size_t i = 0; i < op.schema().returns().size(); ++i) {
    auto& result = torch::jit::peek(*stack, i, op.schema().returns().size());
    if (!outs.empty()) {
      result = outs[i].resize_(result.toTensor().sizes()).copy_(result.toTensor());
    } else if (const at::Tensor made = result.toTensor(); made.scalar_type() == *wide) {
      result = made.to(rounded);
    } else if (made.scalar_type() == at::kFloat) {
      result = made.to(at::kHalf);  // a part of a complex number
    }
  }
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  impl_boxed<&in_wider_dtype>(
      m,
      "angle angle.out multi_margin_loss multi_margin_loss.out multi_margin_loss_backward "
      "multi_margin_loss_backward.grad_input multilabel_margin_loss_forward "
      "multilabel_margin_loss_forward.output multilabel_margin_loss_backward "
      "multilabel_margin_loss_backward.grad_input prod prod.out");
  impl_boxed<&abs>(m, "abs.out");
  impl_boxed<&trace>(m, "trace");
  impl_boxed<&nansum>(m, "nansum nansum.out");
  impl_boxed<&histc>(m, "histc histc.out");
}

}  // namespace openreg::ops
