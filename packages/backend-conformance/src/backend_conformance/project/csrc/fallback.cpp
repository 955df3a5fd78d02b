// The fallback: every operator without a kernel of its own runs on the CPU. PyTorch copies the
// arguments to the CPU and the results back, so the host waits. Write kernels for the operators
// that a profile shows.
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <string>
#include <string_view>
#include <vector>

#include "device.h"
#include "generator.h"

namespace torch_acme {

namespace {

// Operators that accept arguments on the CPU beside those on the device.
bool accepts_cpu_tensors(std::string_view name) {
  for (const auto* part : {"index", "_ctc_loss", "pack_padded", "copy"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// PyTorch would copy all of them to the CPU, so a mistake of the program would pass unnoticed.
// Returns the device.
c10::DeviceIndex check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const bool cpu_is_welcome = accepts_cpu_tensors(schema.name());
  std::optional<c10::Device> device;
  std::vector<at::Tensor> on_cpu;
  const auto check = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && (tensor.dim() == 0 || cpu_is_welcome))) return;
    if (!device) device = tensor.device();
    TORCH_CHECK(tensor.device() == *device, "Expected all tensors to be on the same device, but ",
                schema.name(), " got ", *device, " and ", tensor.device());
  };
  for (const auto& argument : torch::jit::last(stack, schema.arguments().size())) {
    if (argument.isTensor()) check(argument.toTensor());
    if (argument.isTensorList())
      for (const at::Tensor& tensor : argument.toTensorVector()) check(tensor);
  }
  return device && device->type() == kAcme ? device->index() : current_device();
}

// The CPU's kernels refuse a generator of another device, and without one draw from their own. So
// each call gets a CPU generator from the device's state.
void replace_generators(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                        c10::DeviceIndex device) {
  static const auto kGenerator = c10::getTypePtr<std::optional<at::Generator>>();
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].type()->isSubtypeOf(*kGenerator)) continue;
    auto& given = torch::jit::peek(*stack, i, arguments.size());
    given = take_cpu_generator(given.toOptional<at::Generator>(), device);
  }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  replace_generators(op, stack, check_devices(op, *stack));
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// PyTorch gives convolutions of such a device to two operators that exist for these devices only,
// so the CPU has no kernel. They have the arguments of `convolution`, or those of
// `convolution_backward` without the fourth one, the sizes of the bias.
template <bool kBackward>
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  if constexpr (kBackward) {
    const auto channels = torch::jit::peek(*stack, 0, 10).toTensor().size(1);
    stack->insert(stack->end() - 7, std::vector<std::int64_t>{channels});
  }
  run_on_cpu(c10::Dispatcher::singleton().findSchemaOrThrow(
                 kBackward ? "aten::convolution_backward" : "aten::convolution", ""),
             stack);
}

}  // namespace

using torch::CppFunction;

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", CppFunction::makeFromBoxedFunction<&convolution<false>>());
  m.impl("convolution_backward_overrideable",
         CppFunction::makeFromBoxedFunction<&convolution<true>>());
  // PyTorch would allocate the results of these with a size that the CPU's kernels change, and
  // warn. Called as a whole they make their own.
  m.impl("mse_loss", CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("smooth_l1_loss", CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace torch_acme
