// Fourier transforms in half precision, which CUDA has and PyTorch refuses for the CPU: they are
// computed in single precision and rounded. CUDA takes only powers of two; openreg takes all sizes.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "slot.h"
#include "slot_dtypes.h"

namespace openreg::ops {

namespace {

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

/// Whether its last size is given by the number of frequencies: n for 2 (n - 1).
bool is_inverse_of_real(std::string_view name) {
  return name.starts_with("aten::fft_irfft") || name.starts_with("aten::fft_hfft");
}

/// The sizes of a transform. Nothing if the operator will refuse its arguments: (self, n, dim), of
/// two or more dimensions (self, s, dim), of short times (self, n).
std::vector<std::int64_t> signal_sizes(std::string_view name, at::ArrayRef<c10::IValue> arguments) {
  if (name.starts_with("aten::stft") || name.starts_with("aten::istft"))
    return {arguments[1].toInt()};
  const at::Tensor self = arguments[0].toTensor();
  const auto integers = [](const c10::IValue& value) {
    return value.isInt() ? std::vector{value.toInt()} : value.toIntVector();
  };
  const auto given = arguments[1].isNone() ? std::vector<std::int64_t>() : integers(arguments[1]);
  std::vector<std::int64_t> dims;
  if (!arguments[2].isNone()) {
    dims = integers(arguments[2]);
  } else {
    dims.resize(given.empty() ? self.dim() : given.size());
    std::iota(dims.begin(), dims.end(), -std::ssize(dims));
  }
  if (!given.empty() && given.size() != dims.size()) return {};
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -self.dim() || dims[i] >= self.dim()) return {};
    const bool is_given = !given.empty() && given[i] != -1;
    const bool counts_frequencies = i + 1 == dims.size() && is_inverse_of_real(name);
    const auto size = self.size(dims[i]);
    sizes.push_back(is_given ? given[i] : counts_frequencies ? 2 * (size - 1) : size);
    if (sizes.back() < 1) return {};
  }
  return sizes;
}

[[maybe_unused]] void check_sizes(std::string_view name, at::ArrayRef<c10::IValue> arguments) {
  const auto sizes = signal_sizes(name, arguments);
  TORCH_CHECK(
      std::ranges::all_of(
          sizes, [](auto size) { return std::has_single_bit(static_cast<std::uint64_t>(size)); }),
      "cuFFT only supports dimensions whose sizes are powers of two when computing in half "
      "precision, but got a signal size of",
      sizes);
}

void transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto begin = stack->end() - std::ssize(arguments);
  if (!is_half(begin->toTensor())) return run_composite(op, stack);
  if constexpr (kHalfTransformsOfPowersOfTwoOnly)
    check_sizes(op.schema().name(), torch::jit::last(*stack, arguments.size()));
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
