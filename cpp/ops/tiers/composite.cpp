#include "ops/tiers/composite.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "ops/tiers/dispatch.h"
#include "ops/wire/ivalue_arguments.h"
#include "slot.h"

namespace openreg::ops {

namespace {

template <class Predicate>
bool any_tensor(c10::ArrayRef<c10::IValue> arguments, Predicate&& is) {
  bool any = false;
  for (const auto& argument : arguments)
    for_each_tensor(argument,
                    [&](const at::Tensor& tensor) { any |= tensor.defined() && is(tensor); });
  return any;
}

// Operators that the CPU computes in another way if no gradient is needed.
void whole_below_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  is_plain_call(arguments) ? fallback(op, stack) : run_composite(op, stack);
}

void whole_unless_gradient(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  is_plain_call(arguments) && !needs_gradient(arguments) ? run_as_one_command(op, stack)
                                                         : run_composite(op, stack);
}

}  // namespace

bool is_plain_call(c10::ArrayRef<c10::IValue> arguments) {
  constexpr c10::DispatchKeySet kWrappers({
      c10::DispatchKey::Python,
      c10::DispatchKey::Functionalize,
      c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::FuncTorchBatched,
      c10::DispatchKey::ZeroTensor,
  });
  const auto is_other = [&](const at::Tensor& tensor) {
    return !backend::is_openreg(tensor) || tensor.layout() != at::kStrided ||
           tensor.key_set().has_any(kWrappers) ||
           tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  };
  return !at::autocast::is_autocast_enabled(backend::kDeviceType) &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         !c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) &&
         !any_tensor(arguments, is_other);
}

bool needs_gradient(c10::ArrayRef<c10::IValue> arguments) {
  return (at::GradMode::is_enabled() &&
          any_tensor(arguments, [](const at::Tensor& tensor) { return tensor.requires_grad(); })) ||
         any_tensor(arguments, [](const at::Tensor& tensor) {
           return tensor._fw_grad(/*level=*/0).defined();
         });
}

void run_composite(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void run_as_one_command(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  fallback(op, stack);
}

OPENREG_LIBRARY_IMPL(aten, m) {
  // Without a gradient the CPU computes no indices, in a tenth of the time.
  impl_boxed<&whole_below_autograd>(m, "max_pool1d");
}

OPENREG_LIBRARY_IMPL_FOR(Autograd, aten, m) { impl_boxed<&whole_unless_gradient>(m, "max_pool1d"); }

}  // namespace openreg::ops
