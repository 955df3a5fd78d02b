// Fourier transforms in half precision, which CUDA has and PyTorch refuses for the CPU: they are
// computed in single precision and rounded. CUDA takes only powers of two; the device takes all
// sizes. Since 2.14 CUDA also takes bfloat16, as if it were single precision.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <string>

#include "slot.h"

namespace openreg::ops {

namespace {

constexpr bool kTakesBFloat16 = OPENREG_TORCH_AT_LEAST(2, 14);

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kComplexHalf;
}

at::Tensor rounded(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexHalf : at::kHalf);
}

/// Runs PyTorch's composite implementation of the operator, which is registered for the CPU.
void run_composite(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto begin = stack->end() - std::ssize(arguments);
  for (std::size_t i = 0; kTakesBFloat16 && i < arguments.size(); ++i) {
    auto& value = begin[static_cast<std::ptrdiff_t>(i)];
    if (value.isTensor() && value.toTensor().defined() && !arguments[i].is_out() &&
        value.toTensor().scalar_type() == at::kBFloat16)
      value = value.toTensor().to(at::kFloat);
  }
  if (!is_half(begin->toTensor())) return run_composite(op, stack);
  at::Tensor out;
  bool all_are_half = true;  // a window of stft may be wider
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& value = begin[static_cast<std::ptrdiff_t>(i)];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto tensor = value.toTensor();
    const auto wide = tensor.options().dtype(at::toOpMathType(tensor.scalar_type()));
    if (arguments[i].is_out()) {
      out = tensor;
      value = at::empty({0}, wide);
    } else {
      all_are_half &= is_half(tensor);
      value = tensor.to(wide);
    }
  }
  run_composite(op, stack);
  const auto result = stack->back().toTensor();
  if (out.defined()) {
    at::native::resize_output(out, result.sizes());
    stack->back() = out.copy_(result);
  } else if (all_are_half) {
    stack->back() = rounded(result);
  }
}

void register_transforms(torch::Library& m) {
  const auto add = [&](const std::string& name) {
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
  };
  for (const std::string kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
    for (const auto* dims : {"", "2", "n"}) {
      add("fft_" + kind + dims);
      add("fft_" + kind + dims + ".out");
    }
  }
  for (const auto* name : {"stft", "stft.center", "istft"}) add(name);
}

}  // namespace

// Under autograd's key, because composite operators are differentiated through the operators of
// which they are made; the other key is used in inference mode.
OPENREG_LIBRARY_IMPL(aten, m) { register_transforms(m); }
OPENREG_LIBRARY_IMPL_FOR(Autograd, aten, m) { register_transforms(m); }

}  // namespace openreg::ops
