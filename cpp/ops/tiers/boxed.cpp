#include "ops/tiers/boxed.h"

#include <ATen/native/Resize.h>

#include <utility>

#include "backend/stream.h"
#include "ops/launch/launch.h"
#include "ops/tensors/factories.h"
#include "ops/tiers/boxed_operator.h"
#include "ops/tiers/boxed_plan.h"
#include "ops/tiers/temporary_outputs.h"

namespace openreg::ops {

namespace {

using Role = BoxedOperator::Role;

PlanUse find_plan(const BoxedOperator& op, ArgumentWriter& writer,
                  BoxedOperator::Arguments arguments) {
  const auto signature = writer.signature(&op);
  if (auto known = PlanCache::find(signature)) return known;
  return PlanCache::insert(signature, plan_boxed(op, writer, arguments));
}

/// For an output of the wrong size the kernel itself decides whether to warn, and about strides.
bool outs_are_as_planned(const BoxedOperator& op, const CachedPlan& plan,
                         BoxedOperator::Arguments arguments) {
  for (std::size_t i = 0, out = op.new_results(); i < op.roles().size(); ++i) {
    if (op.roles()[i] != Role::kOut) continue;
    const auto& tensor = arguments[i].toTensor();
    const auto& as = plan.results[out++];
    if (is_empty_default(tensor)) continue;
    const bool restrided = tensor.numel() == 0 && tensor.strides() != at::IntArrayRef(as.strides);
    if (tensor.sizes() != at::IntArrayRef(as.sizes) || restrided) return false;
  }
  return true;
}

/// Whether an input is also the output, with strides that the kernel may not be given.
bool works_in_place_on_other_strides(const BoxedOperator& op, BoxedOperator::Arguments arguments) {
  if (op.outs() == 0 || op.writes_any_strides()) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (op.roles()[i] == Role::kOut && input_that_is(arguments, i) != i &&
        !has_default_strides(arguments[i].toTensor()))
      return true;
  }
  return false;
}

/// Launches the operator on tensors of default strides in place of those of the call.
bool launch_with_temporary_outputs(const c10::OperatorHandle& handle, c10::Device device,
                                   torch::jit::Stack* stack) {
  const TemporaryOutputs temporaries(handle.schema(), *stack);
  if (!launch_boxed(handle, device, stack)) {
    temporaries.put_back(*stack, handle.schema().arguments().size());
    return false;
  }
  temporaries.copy_back(*stack, handle.schema().returns().size());
  return true;
}

/// Whether an input lies in the memory of an output. Tier 3 decides whether they overlap.
bool shares_memory(const BoxedOperator& op, BoxedOperator::Arguments arguments,
                   const at::Tensor& out) {
  bool found = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (op.roles()[i] != Role::kOut)
      for_tensors_in_memory_of(out, arguments[i], [&](const at::Tensor&) { found = true; });
  }
  return found;
}

/// Whether the kernel may be given this output: Note [Outputs of any strides]. Some kernels compute
/// in more memory than the elements need.
bool may_be_written(const at::Tensor& output, const Geometry& as) {
  return output.numel() == 0 ||
         (output.strides() == at::IntArrayRef(as.strides) && output.nbytes() >= as.nbytes);
}

}  // namespace

bool launch_boxed(const c10::OperatorHandle& handle, c10::Device device, torch::jit::Stack* stack) {
  // Custom operators may be written in Python, and may be unregistered.
  if (handle.operator_name().name.rfind("aten::", 0) != 0) return false;
  const auto* const op = BoxedOperator::find(handle);
  if (op == nullptr) return false;
  const auto count = op->roles().size();
  const auto arguments = torch::jit::last(*stack, count);
  if (works_in_place_on_other_strides(*op, arguments))
    return launch_with_temporary_outputs(handle, device, stack);
  ArgumentWriter writer(op->kernel().name(), device);
  if (!op->write_arguments(writer, arguments)) return false;
  // Kernels report overlapping memory in tier 3. Kernels that take lists do not check it.
  if (!op->takes_lists() && writer.written_memory_overlaps()) return false;
  const auto plan = find_plan(*op, writer, arguments);
  if (!plan->asynchronous || !outs_are_as_planned(*op, *plan, arguments)) return false;

  auto& stream = backend::current_stream(device.index());
  c10::SmallVector<at::Tensor, 3> made;
  std::size_t next = 0;
  writer.at_argument(ArgumentPlace::kResult);
  for (; next < op->new_results(); ++next) {
    writer.encode(plan->allocations[next]);
    made.push_back(make_result(stream, plan->results[next]));
    writer.tensor(made.back(), Access::kWrite);
  }
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 3> temporaries;
  for (std::size_t i = 0; i < count; ++i) {
    if (op->roles()[i] != Role::kOut) continue;
    writer.at_argument(static_cast<std::int16_t>(i));
    const auto& as = plan->results[next++];
    const auto& out = arguments[i].toTensor();
    if (at::native::resize_output(out, as.sizes))
      out.unsafeGetTensorImpl()->set_sizes_and_strides(as.sizes, as.strides);
    if (op->writes_any_strides() || may_be_written(out, as)) {
      writer.tensor(out, Access::kWrite);
    } else if (shares_memory(*op, arguments, out)) {
      return false;
    } else {
      temporaries.emplace_back(make_result(stream, as), out);
      writer.tensor(temporaries.back().first, Access::kWrite);
    }
  }
  // An output overlaps an input, or itself: the kernel reports that in tier 3.
  if (op->outs() > 0 && writer.written_memory_overlaps()) return false;
  launch(op->kernel(), writer, *plan, backend::counters::boxed);
  for (const auto& [result, output] : temporaries) copy_to_output(result, output);

  torch::jit::Stack results;
  next = 0;
  for (const int argument : op->results()) {
    results.push_back(argument == BoxedOperator::kNew
                          ? c10::IValue(std::move(made[next++]))
                          : arguments[static_cast<std::size_t>(argument)]);
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

}  // namespace openreg::ops
