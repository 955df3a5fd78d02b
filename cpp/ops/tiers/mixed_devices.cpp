// Operators that take tensors of several devices, as with CUDA: what they only read follows what
// they write, also to the CPU. Indices and numbers of the CPU beside the device's tensors are not
// moved: commands carry them.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "ops/tiers/dispatch.h"
#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// _index_put_impl_(self, indices, values, accumulate, unsafe): moves indices, and a value that is
/// a number.
void index_put(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::size_t kArguments = 5;
  const auto place = torch::jit::peek(*stack, 0, kArguments).toTensor().device();
  const auto is_elsewhere = [&](const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_cpu() && tensor.device() != place;
  };
  const auto moved = [&](const at::Tensor& tensor) {
    return is_elsewhere(tensor) ? tensor.to(place) : tensor;
  };
  bool mixed = false;
  auto& indices = torch::jit::peek(*stack, 1, kArguments);
  for_each_tensor(indices, [&](const at::Tensor& index) { mixed |= is_elsewhere(index); });
  if (mixed) map_tensors(indices, moved);
  auto& values = torch::jit::peek(*stack, 2, kArguments);
  if (values.toTensor().dim() == 0) values = moved(values.toTensor());
  if (!place.is_cpu()) return fallback(op, stack);
  if (is_elsewhere(values.toTensor()))
    refuse_mixed_devices("aten::_index_put_impl_", place, values.toTensor().device());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

/// index_fill_.int_Tensor(self, dim, index, value): moves the number to the CPU.
void index_fill(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::size_t kArguments = 4;
  const auto is_on_cpu = [&](std::size_t i) {
    return torch::jit::peek(*stack, i, kArguments).toTensor().is_cpu();
  };
  auto& value = torch::jit::peek(*stack, 3, kArguments);
  if (!is_on_cpu(0) || !is_on_cpu(2) || value.toTensor().dim() != 0) return fallback(op, stack);
  value = value.toTensor().cpu();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  impl_boxed<&index_put>(m, "_index_put_impl_");
  impl_boxed<&index_fill>(m, "index_fill_.int_Tensor");
}

}  // namespace openreg::ops
