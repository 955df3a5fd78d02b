#include "ops/tiers/host_tier.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/interned_strings.h>

#include <algorithm>
#include <optional>
#include <string>

#include "backend/generator.h"
#include "backend/result_placement.h"
#include "backend/stream.h"
#include "memory/command_check.h"
#include "memory/value_tracker.h"
#include "ops/launch/launch.h"
#include "ops/tensors/cpu_alias.h"
#include "ops/tiers/quirks.h"
#include "ops/tiers/temporary_outputs.h"
#include "ops/tiers/uncomputed.h"
#include "ops/wire/ivalue_arguments.h"
#include "runtime/trace.h"
#include "slot.h"

namespace openreg::ops {

// Note [Tier 3]
//
// The launching thread runs the kernel itself, once the stream is idle. This keeps the order of
// the stream as far as this thread sees it, lets the kernel raise at the call, and runs kernels
// written in Python on the thread on which Python expects them. The cost is that the host waits;
// launch_stats() counts these waits.
namespace {

bool is_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

/// A CPU generator seeded from the device's generator, or from the given one: the same seed of the
/// device gives the same numbers, and the CPU's own random state does not change.
at::Generator cpu_generator(const c10::IValue& given, c10::Device device) {
  constexpr std::uint64_t kNumbersPerCall = 4;
  const auto generator = given.isNone() ? std::nullopt : std::optional(given.toGenerator());
  const auto philox = backend::reserve_philox(generator, device.index(), kNumbersPerCall);
  // The CPU's generator uses 32 bits of its seed: the upper half of a product depends on all bits.
  const auto mixed = (philox.seed ^ (philox.offset * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
  return at::detail::createCPUGenerator(mixed >> 32);
}

}  // namespace

bool is_foreign(const c10::OperatorHandle& op) {
  return !op.operator_name().name.starts_with("aten::");
}

void run_on_host(const c10::OperatorHandle& cpu_op, c10::Device device, c10::DispatchKey key,
                 torch::jit::Stack* stack) {
  const auto& schema = cpu_op.schema();
  std::optional<memory::Values> values;
  if (memory::ValueTracker::get() && !(values = run_uncomputed(cpu_op, device, stack))) return;
  const auto arguments_count = schema.arguments().size();
  const TemporaryOutputs temporaries(schema, *stack);  // before the wait: it may copy an output
  wait_for_device(device, cpu_op.operator_name().name.c_str());

  // The schemas of operators that are not PyTorch's may be wrong.
  const bool writes_all = is_foreign(cpu_op);
  const std::string op_name = c10::toString(cpu_op.operator_name());
  const bool has_no_access = has_quirk(op_name.c_str(), Quirk::kChangesStorage);
  CpuAliases aliases(device, has_no_access ? nullptr : op_name.c_str());
  if (memory::checks::any_beside(memory::checks::kFaults))
    aliases.set_zeros(ZeroArguments(torch::jit::last(*stack, arguments_count)));
  c10::SmallVector<at::Tensor, 2> on_cpu;  // arguments
  bool wants_cpu = false;                  // it is a copy to the CPU
  for (std::size_t i = 0; i < arguments_count; ++i) {
    auto& argument = (*stack)[stack->size() - arguments_count + i];
    if (argument.isDevice()) {
      const auto wanted = argument.toDevice();
      TORCH_CHECK_NOT_IMPLEMENTED(
          wanted.is_cpu() || backend::is_openreg(wanted), "openreg: ", cpu_op.operator_name(),
          " cannot create a tensor on another device type (got ", wanted, ")");
      wants_cpu = wanted.is_cpu();
      argument = c10::Device(c10::kCPU);
    } else if (is_generator(schema.arguments()[i])) {
      argument = cpu_generator(argument, device);
    } else {
      aliases.at_argument(static_cast<std::int16_t>(i));
      const bool is_declared = is_written(op_name.c_str(), schema.arguments()[i]);
      const auto declared = is_declared ? Access::kWrite : Access::kRead;
      const auto access = writes_all ? Access::kWrite : declared;
      map_tensors(argument, [&](const at::Tensor& tensor) {
        if (tensor.defined() && backend::is_openreg(tensor))
          return aliases.alias(tensor, access, declared);
        if (tensor.defined()) on_cpu.push_back(tensor);
        return tensor;
      });
    }
  }

  backend::counters::synchronous.add();
  if (is_foreign(cpu_op)) backend::counters::cpu_fallbacks.add();
  {
    // The operator may be gone when the trace is read, so the name must outlive it.
    const char* const name =
        tracing::on() ? c10::Symbol::fromQualString(cpu_op.operator_name().name).toQualString()
                      : "";
    const auto& stream = backend::current_stream(device.index());
    const tracing::HostCommand traced({stream.device(), stream.id()}, name);
    const BelowAutograd below_autograd;
    const backend::DeviceMemoryLimit room(device);
    cpu_op.redispatchBoxed(c10::DispatchKeySet(key), stack);
    aliases.copy_back();
  }
  for (auto i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    map_tensors((*stack)[i], [&](const at::Tensor& result) {
      const bool argument = std::any_of(on_cpu.begin(), on_cpu.end(),
                                        [&](const at::Tensor& t) { return t.is_same(result); });
      return argument || wants_cpu ? result : aliases.to_device(result);
    });
  }
  if (values) note_values(cpu_op, *stack, *values);
  temporaries.copy_back(*stack, schema.returns().size());
}

}  // namespace openreg::ops
