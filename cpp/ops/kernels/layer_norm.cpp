// Layer normalisation, forward. ATen's kernel can only be reached through the CPU's functional
// operator, whose result would have to be copied: that takes longer than computing it.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/cuda_memory/gpu.h"
#include "ops/kernels/half_conversion.h"
#include "ops/kernels/rows.h"
#include "ops/launch/function_kernel.h"
#include "ops/launch/vector_clones.h"
#include "ops/tensors/checks.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// One row of elements T with parameters P (null: 1 and 0).
template <class T, class P>
struct LayerRow {
  using Real = at::opmath_type<T>;

  const T* input;
  const P* weight;
  const P* bias;
  std::int64_t size;
  Real eps;
  T* output;
  P* mean;
  P* rstd;

  [[gnu::always_inline]] Real x(std::int64_t i) const { return static_cast<Real>(input[i]); }

  /// The mean, up to the error of a long sum; 0 if there are no elements, as on the CPU.
  [[gnu::always_inline]] Real rough_mean() const {
    if (size == 0) return 0;
    const auto n = static_cast<Real>(size);
    const Real mean_of_row = sum_of<Real>(size, [&](std::int64_t i) { return x(i); }) / n;
    if (std::isfinite(mean_of_row)) return mean_of_row;
    // The sum may be too large for a Real; the mean is not.
    return sum_of<Real>(size, [&](std::int64_t i) { return x(i) / n; });
  }

  [[gnu::always_inline]] void normalize() const {
    const Real center = rough_mean();
    const auto [sum, squares] = sums_of<Real, 2>(size, [&](std::int64_t i) {
      const Real distance = x(i) - center;
      return Sums<Real, 2>{distance, distance * distance};
    });
    const auto n = static_cast<Real>(size);
    // The mean is center + rest; if there are no elements or the sum is too large, it is center.
    const Real rest = size != 0 && std::isfinite(sum) ? sum / n : 0;
    // An infinite spread stays infinite, because the square of `rest` may be infinite too.
    const Real spread = squares / n;
    const Real variance = std::isfinite(spread) ? spread - rest * rest : spread;
    const Real scale = 1 / std::sqrt((variance < 0 ? 0 : variance) + eps);
    const Real shift = -rest * scale;
    const auto weigh = [&](auto&& weight_of, auto&& bias_of) {
      for (std::int64_t i = 0; i < size; ++i)
        output[i] = static_cast<T>(((x(i) - center) * scale + shift) * weight_of(i) + bias_of(i));
    };
    const auto given_weight = [&](std::int64_t i) { return static_cast<Real>(weight[i]); };
    const auto given_bias = [&](std::int64_t i) { return static_cast<Real>(bias[i]); };
    const auto one = [](std::int64_t) { return Real(1); };
    const auto zero = [](std::int64_t) { return Real(0); };
    if (weight && bias) {
      weigh(given_weight, given_bias);
    } else if (weight) {
      weigh(given_weight, zero);
    } else if (bias) {
      weigh(one, given_bias);
    } else {
      weigh(one, zero);
    }
    *mean = static_cast<P>(center + rest);
    *rstd = static_cast<P>(scale);
  }
};

template <class T, class P>
void normalize_layer_row(const LayerRow<T, P>& row) {
  row.normalize();
}
OPENREG_VECTOR_CLONES
void normalize_layer_row(const LayerRow<float, float>& row) { row.normalize(); }
OPENREG_VECTOR_CLONES
void normalize_layer_row(const LayerRow<at::BFloat16, at::BFloat16>& row) { row.normalize(); }
OPENREG_VECTOR_CLONES
void normalize_layer_row(const LayerRow<at::BFloat16, float>& row) { row.normalize(); }

template <class T, class P>
void normalize_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    double eps, at::Tensor& output, at::Tensor& mean, at::Tensor& rstd) {
  const auto rows = mean.numel();
  const auto size = rows == 0 ? 0 : input.numel() / rows;
  const auto parameters = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.const_data_ptr<P>() : nullptr;
  };
  const LayerRow<T, P> first{input.const_data_ptr<T>(),
                             parameters(weight),
                             parameters(bias),
                             size,
                             static_cast<at::opmath_type<T>>(eps),
                             output.mutable_data_ptr<T>(),
                             mean.mutable_data_ptr<P>(),
                             rstd.mutable_data_ptr<P>()};
  for_each_row(rows, size, [&](std::int64_t i) {
    auto row = first;
    row.input += i * size;
    row.output += i * size;
    row.mean += i;
    row.rstd += i;
    normalize_layer_row(row);
  });
}

/// Rows of float16, in float32, one after another in a buffer that stays in the cache.
void normalize_half_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                         double eps, at::Tensor& output, at::Tensor& mean, at::Tensor& rstd) {
  const auto in_float = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(at::kFloat) : at::Tensor();
  };
  const auto data = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
  };
  const auto gamma = in_float(weight);
  const auto beta = in_float(bias);
  const auto means = at::empty_like(mean, mean.options().dtype(at::kFloat));
  const auto rstds = at::empty_like(means);
  const auto rows = mean.numel();
  const auto size = rows == 0 ? 0 : input.numel() / rows;
  constexpr std::int64_t kMostKept = std::int64_t{1} << 18;  // elements of a row
  const auto* const from = input.const_data_ptr<at::Half>();
  auto* const to = output.mutable_data_ptr<at::Half>();
  for_each_row(rows, size, [&](std::int64_t i) {
    thread_local std::vector<float> buffer;
    buffer.resize(static_cast<std::size_t>(2 * size));
    auto* const result = buffer.data() + size;
    to_floats(from + i * size, buffer.data(), size);
    normalize_layer_row(LayerRow<float, float>{
        buffer.data(), data(gamma), data(beta), size, static_cast<float>(eps), result,
        means.mutable_data_ptr<float>() + i, rstds.mutable_data_ptr<float>() + i});
    to_halves(result, to + i * size, size);
    if (size > kMostKept) std::vector<float>().swap(buffer);
  });
  mean.copy_(means);
  rstd.copy_(rstds);
}

void run_layer_norm(const at::Tensor& input, const OptionalTensor& weight,
                    const OptionalTensor& bias, double eps, at::Tensor& out, at::Tensor& mean,
                    at::Tensor& rstd) {
  const auto x = input.contiguous();
  const auto gamma = contiguous(weight);
  const auto beta = contiguous(bias);
  if (input.scalar_type() == at::kHalf)
    return normalize_half_rows(x, gamma, beta, eps, out, mean, rstd);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, input.scalar_type(), "LayerNormKernelImpl", [&] {
    if (mean.scalar_type() == input.scalar_type())
      return normalize_rows<scalar_t, scalar_t>(x, gamma, beta, eps, out, mean, rstd);
    normalize_rows<scalar_t, float>(x, gamma, beta, eps, out, mean, rstd);
  });
}

const FunctionKernel<&run_layer_norm> layer_norm_kernel{"aten::native_layer_norm"};

/// Means or deviations. CUDA's have the dtype in which it computes: without computing they take as
/// much memory.
at::Tensor empty_statistics(const at::Tensor& input, at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto wider = at::toOpMathType(input.scalar_type());
  if (!cuda_memory::is_reproduced() || c10::elementSize(dtype) == c10::elementSize(wider))
    return empty_on(input.device(), sizes, dtype);
  const auto count = c10::multiply_integers(sizes);
  return empty_on(input.device(), {2 * count}, dtype).narrow(0, 0, count).view(sizes);
}

/// \param input [*, *normalized_shape]. \param weight, bias of normalized_shape, or none.
/// \return the result, contiguous, of input's shape; mean and 1 / deviation, which have size 1 in
/// each normalised dimension.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input,
                                                                 at::IntArrayRef normalized_shape,
                                                                 const OptionalTensor& weight,
                                                                 const OptionalTensor& bias,
                                                                 double eps) {
  const auto gamma = weight.value_or(at::Tensor());
  const auto beta = bias.value_or(at::Tensor());
  const bool mixed = at::native::is_mixed_type(input, gamma, beta);
  if (mixed) at::native::check_mixed_data_type(input, gamma, beta);
  at::native::_check_layer_norm_inputs(input, normalized_shape, gamma, beta);
  auto statistics_shape = input.sizes().vec();
  std::fill(statistics_shape.end() - std::ssize(normalized_shape), statistics_shape.end(), 1);
  const auto dtype = at::native::param_scalar_type(input, mixed);
  auto out = at::empty_like(input, at::MemoryFormat::Contiguous);
  auto mean = empty_statistics(input, statistics_shape, dtype);
  auto rstd = empty_statistics(input, statistics_shape, dtype);
  layer_norm_kernel.launch(input.device(), input, weight, bias, eps, out, mean, rstd);
  return {out, mean, rstd};
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("native_layer_norm", TORCH_FN(native_layer_norm)); }

}  // namespace openreg::ops
