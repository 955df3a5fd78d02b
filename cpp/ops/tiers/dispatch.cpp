#include "ops/tiers/dispatch.h"

#include <optional>

#include "backend/device.h"
#include "base/device_name.h"
#include "base/settings.h"
#include "ops/tiers/boxed.h"
#include "ops/tiers/host_tier.h"
#include "ops/tiers/quirks.h"
#include "ops/tiers/uncomputed.h"
#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// Finds the device of a call and refuses mixed ones with the CPU's message.
class CallDevice {
 public:
  explicit CallDevice(const c10::OperatorHandle& op) : op_(op) {}

  void add(const at::Tensor& tensor, const c10::Argument& argument) {
    if (!tensor.defined()) return;
    if (backend::is_openreg(tensor)) {
      add(tensor.device());
      return;
    }
    // A 0-dim tensor is a number, unless the operator writes it: then a copy of its value cannot
    // replace it.
    const bool number = tensor.dim() == 0 && !is_written(argument.alias_info());
    if (!number && !cpu_tensor_ &&
        !takes_cpu_tensors(c10::toString(op_.operator_name()).c_str(), argument.name().c_str())) {
      cpu_tensor_ = tensor.device();
    }
  }
  void add(c10::Device device) {
    if (!backend::is_openreg(device)) return;
    device = c10::Device(device.type(), backend::resolve_device(device.index()));
    if (device_ && *device_ != device) refuse(*device_, device);
    device_ = device;
  }
  c10::Device get() const {
    if (device_ && cpu_tensor_) refuse(*device_, *cpu_tensor_);
    return device_.value_or(c10::Device(backend::kDeviceType, backend::current_device()));
  }

 private:
  [[noreturn]] void refuse(c10::Device a, c10::Device b) const {
    refuse_mixed_devices(c10::toString(op_.operator_name()), a, b);
  }

  const c10::OperatorHandle& op_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> cpu_tensor_;
};

/// The stack holds the arguments of `cpu_op`.
c10::Device device_of_call(const c10::OperatorHandle& op, const c10::OperatorHandle& cpu_op,
                           const torch::jit::Stack& stack) {
  const auto& schema = cpu_op.schema();
  const auto arguments = torch::jit::last(stack, schema.arguments().size());
  CallDevice device(op);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isDevice()) device.add(arguments[i].toDevice());
    TORCH_CHECK(!(arguments[i].isBool() && arguments[i].toBool() &&
                  schema.arguments()[i].name() == "pin_memory"),
                "Only dense CPU tensors can be pinned");
    for_each_tensor(arguments[i],
                    [&](const at::Tensor& tensor) { device.add(tensor, schema.arguments()[i]); });
  }
  return device.get();
}

void expect_cpu_kernel(const c10::OperatorHandle& op, bool has_one) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      has_one, "openreg: ", op.operator_name(), " has no kernel for ", kDeviceName,
      ", and no kernel for the CPU that could run instead; register one for \"", kDeviceName,
      "\" (dispatch key ", backend::kDispatchKey, ")");
}

void expect_fallback(const c10::OperatorHandle& op, const c10::OperatorHandle& cpu_op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      settings().cpu_fallback || !is_foreign(cpu_op), "openreg: ", op.operator_name(),
      " has no kernel for ", kDeviceName,
      ", and TORCH_OPENREG_CPU_FALLBACK=0 disables the CPU fallback; register one for \"",
      kDeviceName, "\" (dispatch key ", backend::kDispatchKey, "), or move the tensors to the CPU");
}

}  // namespace

void dispatch_to_tier(const c10::OperatorHandle& op, const c10::OperatorHandle& cpu_op,
                      torch::jit::Stack* stack) {
  constexpr auto kKey = c10::DispatchKey::CPU;
  const bool has_kernel = cpu_op.hasComputedKernelForDispatchKey(kKey);
  if (!has_kernel && call_fake(cpu_op, stack)) return;
  expect_cpu_kernel(op, has_kernel);
  expect_fallback(op, cpu_op);
  const auto device = device_of_call(op, cpu_op, *stack);
  if (!launch_boxed(cpu_op, device, stack)) run_on_host(cpu_op, device, kKey, stack);
}

void run_on_this_thread(const c10::OperatorHandle& op, c10::DispatchKey cpu_key,
                        torch::jit::Stack* stack) {
  expect_cpu_kernel(op, op.hasComputedKernelForDispatchKey(cpu_key));
  expect_fallback(op, op);
  run_on_host(op, device_of_call(op, op, *stack), cpu_key, stack);
}

bool call_fake(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  return !openreg::computes() && launch_fake(op, device_of_call(op, op, *stack), stack);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  dispatch_to_tier(op, op, stack);
}

OPENREG_LIBRARY_IMPL(_, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace openreg::ops
