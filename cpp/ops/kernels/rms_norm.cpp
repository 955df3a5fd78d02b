// Normalisation by the root mean square, forward and backward: one command each, while the
// composite form has one for each step. ATen has no such kernel for the CPU.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "ops/kernels/rows.h"
#include "ops/launch/function_kernel.h"
#include "ops/launch/vector_clones.h"
#include "ops/tensors/checks.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// A row consists of the elements that are normalised together: the last `dims` dimensions.
std::int64_t rows_of(const at::Tensor& input, std::int64_t dims) {
  return c10::multiply_integers(input.sizes().slice(0, input.dim() - dims));
}
std::int64_t row_size(const at::Tensor& input, std::int64_t dims) {
  return c10::multiply_integers(input.sizes().slice(input.dim() - dims));
}

/// One row of elements T; no weight: 1.
template <class T>
struct RmsRow {
  using Real = at::opmath_type<T>;

  const T* input;
  const T* weight;
  std::int64_t size;

  [[gnu::always_inline]] Real x(std::int64_t i) const { return static_cast<Real>(input[i]); }

  template <class F>
  [[gnu::always_inline]] void weighted(F&& f) const {
    if (weight) {
      f([&](std::int64_t i) { return static_cast<Real>(weight[i]); });
    } else {
      f([](std::int64_t) { return Real(1); });
    }
  }

  [[gnu::always_inline]] Real normalize(Real eps, T* out) const {
    const Real sum = sum_of<Real>(size, [&](std::int64_t i) { return x(i) * x(i); });
    const Real scale = 1 / std::sqrt(sum / static_cast<Real>(size) + eps);
    weighted([&](auto&& weight_of) {
      for (std::int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(x(i) * scale * weight_of(i));
    });
    return scale;
  }

  /// Adds to `grad_weight`. Pointers are null for gradients that are not wanted.
  [[gnu::always_inline]] void differentiate(const T* grad, Real scale, T* grad_input,
                                            Real* grad_weight) const {
    const auto dy = [&](std::int64_t i) { return static_cast<Real>(grad[i]); };
    if (grad_weight) {
      for (std::int64_t i = 0; i < size; ++i) grad_weight[i] += dy(i) * x(i) * scale;
    }
    if (!grad_input) return;
    weighted([&](auto&& weight_of) {
      const auto term = [&](std::int64_t i) { return dy(i) * weight_of(i) * x(i); };
      const Real along = sum_of<Real>(size, term) * scale * scale / static_cast<Real>(size);
      for (std::int64_t i = 0; i < size; ++i)
        grad_input[i] = static_cast<T>((dy(i) * weight_of(i) - x(i) * along) * scale);
    });
  }
};

double normalize_rms_row(const RmsRow<double>& row, double eps, double* out) {
  return row.normalize(eps, out);
}
OPENREG_VECTOR_CLONES
float normalize_rms_row(const RmsRow<float>& row, float eps, float* out) {
  return row.normalize(eps, out);
}
OPENREG_VECTOR_CLONES
float normalize_rms_row(const RmsRow<at::BFloat16>& row, float eps, at::BFloat16* out) {
  return row.normalize(eps, out);
}
OPENREG_VECTOR_CLONES
float normalize_rms_row(const RmsRow<at::Half>& row, float eps, at::Half* out) {
  return row.normalize(eps, out);
}

void differentiate_rms_row(const RmsRow<double>& row, const double* grad, double scale,
                           double* grad_input, double* grad_weight) {
  row.differentiate(grad, scale, grad_input, grad_weight);
}
OPENREG_VECTOR_CLONES
void differentiate_rms_row(const RmsRow<float>& row, const float* grad, float scale,
                           float* grad_input, float* grad_weight) {
  row.differentiate(grad, scale, grad_input, grad_weight);
}
OPENREG_VECTOR_CLONES
void differentiate_rms_row(const RmsRow<at::BFloat16>& row, const at::BFloat16* grad, float scale,
                           at::BFloat16* grad_input, float* grad_weight) {
  row.differentiate(grad, scale, grad_input, grad_weight);
}
OPENREG_VECTOR_CLONES
void differentiate_rms_row(const RmsRow<at::Half>& row, const at::Half* grad, float scale,
                           at::Half* grad_input, float* grad_weight) {
  row.differentiate(grad, scale, grad_input, grad_weight);
}

void run_rms_norm(const at::Tensor& input, std::int64_t dims, const OptionalTensor& weight,
                  double eps, at::Tensor& out, at::Tensor& rstd) {
  const auto x = input.contiguous();
  const auto gamma = contiguous(weight);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "rms_norm", [&] {
    using Real = at::opmath_type<scalar_t>;
    const auto size = row_size(input, dims);
    const RmsRow<scalar_t> first{x.const_data_ptr<scalar_t>(),
                                 gamma.defined() ? gamma.const_data_ptr<scalar_t>() : nullptr,
                                 size};
    auto* to = out.mutable_data_ptr<scalar_t>();
    auto* scales = rstd.mutable_data_ptr<Real>();
    for_each_row(rows_of(input, dims), size, [&](std::int64_t i) {
      auto row = first;
      row.input += i * size;
      scales[i] = normalize_rms_row(row, static_cast<Real>(eps), to + i * size);
    });
  });
}

void run_rms_norm_backward(const at::Tensor& grad_out, const at::Tensor& input, std::int64_t dims,
                           const at::Tensor& rstd, const OptionalTensor& weight,
                           at::Tensor& grad_input, at::Tensor& grad_weight) {
  const auto x = input.contiguous();
  const auto grad = grad_out.contiguous();
  const auto gamma = contiguous(weight);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "rms_norm", [&] {
    using Real = at::opmath_type<scalar_t>;
    const auto dtype = c10::CppTypeToScalarType<Real>::value;
    const auto size = row_size(input, dims);
    const auto scale = rstd.to(dtype).contiguous();
    const RmsRow<scalar_t> first{x.const_data_ptr<scalar_t>(),
                                 gamma.defined() ? gamma.const_data_ptr<scalar_t>() : nullptr,
                                 size};
    const auto* dy = grad.const_data_ptr<scalar_t>();
    const auto* scales = scale.const_data_ptr<Real>();
    auto* to = grad_input.defined() ? grad_input.mutable_data_ptr<scalar_t>() : nullptr;
    at::Tensor sums;  // a row for each thread
    if (grad_weight.defined()) sums = at::zeros({at::get_num_threads(), size}, dtype);
    auto* sum = sums.defined() ? sums.mutable_data_ptr<Real>() : nullptr;
    for_each_row(rows_of(input, dims), size, [&](std::int64_t i) {
      auto row = first;
      row.input += i * size;
      differentiate_rms_row(row, dy + i * size, scales[i], to ? to + i * size : nullptr,
                            sum ? sum + at::get_thread_num() * size : nullptr);
    });
    if (sums.defined()) grad_weight.copy_(sums.sum(0).view(grad_weight.sizes()));
  });
}

const FunctionKernel<&run_rms_norm> rms_norm_kernel{"aten::_fused_rms_norm"};
const FunctionKernel<&run_rms_norm_backward> rms_norm_backward_kernel{
    "aten::_fused_rms_norm_backward"};

void check(const at::Tensor& input, at::IntArrayRef normalized_shape,
           const OptionalTensor& weight) {
  expect_floating("rms_norm", input);
  at::native::_check_layer_norm_inputs(input, normalized_shape, weight.value_or(at::Tensor()), {});
}

/// If the dtypes of input and weight differ: the one that holds both, in which to compute.
std::optional<at::ScalarType> common_dtype(const at::Tensor& input, const OptionalTensor& weight) {
  if (!given(weight) || weight->scalar_type() == input.scalar_type()) return std::nullopt;
  return c10::promoteTypes(input.scalar_type(), weight->scalar_type());
}

/// The default of CUDA and of the composite form.
double default_eps(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
}

/// \param input [*, *normalized_shape]. \param weight of normalized_shape, or none.
/// \return the result, contiguous, of input's shape, and 1 / root of the mean square (in float32 if
/// the input has 16 bits), which has size 1 in each normalised dimension.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm(const at::Tensor& input,
                                                  at::IntArrayRef normalized_shape,
                                                  const OptionalTensor& weight,
                                                  std::optional<double> eps) {
  check(input, normalized_shape, weight);
  if (input.numel() == 0) {  // its strides are those of the composite form
    return at::compositeimplicitautograd::_fused_rms_norm(input, normalized_shape, weight, eps);
  }
  const auto real_eps = eps.value_or(default_eps(input.scalar_type()));
  if (const auto common = common_dtype(input, weight)) {
    const auto [out, rstd] =
        fused_rms_norm(input.to(*common), normalized_shape, weight->to(*common), real_eps);
    return {out.to(input.scalar_type()), rstd.to(at::toOpMathType(input.scalar_type()))};
  }
  auto statistics_shape = input.sizes().vec();
  std::fill(statistics_shape.end() - std::ssize(normalized_shape), statistics_shape.end(), 1);
  auto out = at::empty_like(input, at::MemoryFormat::Contiguous);
  auto rstd = empty_on(input.device(), statistics_shape, at::toOpMathType(input.scalar_type()));
  rms_norm_kernel.launch(input.device(), input, std::ssize(normalized_shape), weight, real_eps, out,
                         rstd);
  return {out, rstd};
}

/// \return the gradients of input and weight; undefined if not wanted.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& rstd, const OptionalTensor& weight, std::array<bool, 2> output_mask) {
  check(input, normalized_shape, weight);
  TORCH_CHECK(grad_out.sizes() == input.sizes(),
              "_fused_rms_norm_backward: expected a gradient of the input's shape ", input.sizes(),
              " (got ", grad_out.sizes(), ")");
  const auto rows = rows_of(input, std::ssize(normalized_shape));
  TORCH_CHECK(rstd.numel() == rows, "_fused_rms_norm_backward: expected rstd of ", rows,
              " elements (got ", rstd.numel(), ")");
  if (const auto common = common_dtype(input, weight)) {
    auto [grad_input, grad_weight] =
        fused_rms_norm_backward(grad_out.to(*common), input.to(*common), normalized_shape, rstd,
                                weight->to(*common), output_mask);
    if (grad_input.defined()) grad_input = grad_input.to(input.scalar_type());
    if (grad_weight.defined()) grad_weight = grad_weight.to(weight->scalar_type());
    return {grad_input, grad_weight};
  }
  auto grad_input =
      output_mask[0] ? at::empty_like(input, at::MemoryFormat::Contiguous) : at::Tensor();
  auto grad_weight = output_mask[1] && given(weight)
                         ? at::empty_like(*weight, at::MemoryFormat::Contiguous)
                         : at::Tensor();
  rms_norm_backward_kernel.launch(input.device(), grad_out, input, std::ssize(normalized_shape),
                                  rstd, weight, grad_input, grad_weight);
  return {grad_input, grad_weight};
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_fused_rms_norm", TORCH_FN(fused_rms_norm));
  m.impl("_fused_rms_norm_backward", TORCH_FN(fused_rms_norm_backward));
}

}  // namespace openreg::ops
