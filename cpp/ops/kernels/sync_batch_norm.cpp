// Batch normalisation in steps, between which processes exchange their sums
// (torch.nn.SyncBatchNorm). The CPU has no such operators; the results of these are like CUDA's:
// statistics are float32 if the input has 16 bits.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <initializer_list>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/launch/function_kernel.h"
#include "ops/tensors/checks.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// `vector` has one number for each channel of `like`; channels are the second dimension.
at::Tensor along_channels(const at::Tensor& vector, const at::Tensor& like, at::ScalarType dtype) {
  std::vector<std::int64_t> shape(like.dim(), 1);
  shape[1] = vector.numel();
  return vector.to(dtype).view(shape);
}

at::Tensor sum_but_channels(const at::Tensor& tensor) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t i = 2; i < tensor.dim(); ++i) dims.push_back(i);
  return tensor.sum(dims);
}

void statistics(const at::Tensor& input, double eps, at::Tensor& mean, at::Tensor& invstd) {
  if (input.numel() == 0) {  // ATen's function refuses it
    for (auto* each : {&mean, &invstd}) each->fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const auto found = at::batch_norm_update_stats(input.to(mean.scalar_type()), {}, {}, 0);
  mean.copy_(std::get<0>(found));
  at::rsqrt_out(invstd, std::get<1>(found) + eps);
}

/// The tensor in which to compute `out` in `dtype`: `out` itself if it has that dtype.
at::Tensor workspace(const at::Tensor& out, at::ScalarType dtype) {
  return out.scalar_type() == dtype ? out : at::empty_like(out, out.options().dtype(dtype));
}

void run_batch_norm(const at::Tensor& input, const OptionalTensor& weight,
                    const OptionalTensor& bias, const at::Tensor& mean, const at::Tensor& invstd,
                    at::Tensor& out) {
  const auto dtype = at::toOpMathType(input.scalar_type());
  auto scale = along_channels(invstd, input, dtype);
  if (given(weight)) scale = scale * along_channels(*weight, input, dtype);
  auto result = workspace(out, dtype);
  at::sub_out(result, input.to(dtype), along_channels(mean, input, dtype)).mul_(scale);
  if (given(bias)) result.add_(along_channels(*bias, input, dtype));
  if (!result.is_same(out)) out.copy_(result);
}

/// Row i of `means` and `invstds` summarises counts[i] elements of each channel.
void gather(const at::Tensor& means, const at::Tensor& invstds, double momentum, double eps,
            const at::Tensor& counts, at::Tensor& running_mean, at::Tensor& running_var,
            at::Tensor& mean, at::Tensor& invstd) {
  const auto dtype = mean.scalar_type();
  const auto weights = counts.to(dtype).unsqueeze(1);
  const auto count = weights.sum();
  const auto centers = means.to(dtype);
  at::sum_out(mean, centers * weights, 0).div_(count);
  const auto variances = invstds.to(dtype).pow(-2) - eps + (centers - mean).square_();
  const auto squares = (variances * weights).sum(0);
  at::rsqrt_out(invstd, squares / count + eps);
  const auto move = [&](at::Tensor& running, const at::Tensor& to) {
    if (running.defined()) running.copy_(running.to(dtype).mul_(1 - momentum).add_(to, momentum));
  };
  move(running_mean, mean);
  move(running_var, squares / (count - 1));
}

void backward_sums(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                   const at::Tensor& invstd, at::Tensor& sum_dy, at::Tensor& sum_dy_xmu,
                   at::Tensor& grad_weight, at::Tensor& grad_bias) {
  const auto dtype = at::toOpMathType(input.scalar_type());
  const auto dy = grad_out.to(dtype);
  if (sum_dy.defined() || grad_bias.defined()) {
    const auto sum = sum_but_channels(dy);
    if (sum_dy.defined()) sum_dy.copy_(sum);
    if (grad_bias.defined()) grad_bias.copy_(sum);
  }
  if (sum_dy_xmu.defined() || grad_weight.defined()) {
    auto centered = input.to(dtype) - along_channels(mean, input, dtype);
    const auto sum = sum_but_channels(centered.mul_(dy));
    if (sum_dy_xmu.defined()) sum_dy_xmu.copy_(sum);
    if (grad_weight.defined()) grad_weight.copy_(sum * invstd.to(dtype));
  }
}

void run_batch_norm_backward(const at::Tensor& grad_out, const at::Tensor& input,
                             const at::Tensor& mean, const at::Tensor& invstd,
                             const OptionalTensor& weight, const at::Tensor& sum_dy,
                             const at::Tensor& sum_dy_xmu, const at::Tensor& count,
                             at::Tensor& grad_input) {
  const auto dtype = at::toOpMathType(input.scalar_type());
  const auto channel = [&](const at::Tensor& vector) {
    return along_channels(vector, input, dtype);
  };
  const auto elements = count.sum().to(dtype);
  const auto slope = channel(sum_dy_xmu) / elements * channel(invstd).square();
  auto scale = channel(invstd);
  if (given(weight)) scale = scale * channel(*weight);
  auto result = workspace(grad_input, dtype);
  at::sub_out(result, input.to(dtype), channel(mean)).mul_(slope).add_(channel(sum_dy) / elements);
  at::sub_out(result, grad_out.to(dtype), result).mul_(scale);
  if (!result.is_same(grad_input)) grad_input.copy_(result);
}

const FunctionKernel<&statistics> statistics_kernel{"aten::batch_norm_stats"};
const FunctionKernel<&run_batch_norm> batch_norm_kernel{"aten::batch_norm_elemt"};
const FunctionKernel<&gather> gather_kernel{"aten::batch_norm_gather_stats_with_counts"};
const FunctionKernel<&backward_sums> backward_sums_kernel{"aten::batch_norm_backward_reduce"};
const FunctionKernel<&run_batch_norm_backward> batch_norm_backward_kernel{
    "aten::batch_norm_backward_elemt"};

void check_input(const char* name, const at::Tensor& input) {
  expect_floating(name, input);
  TORCH_CHECK(input.dim() >= 2, name, ": expected at least 2D input (got ", input.dim(),
              "D input)");
}

void check_channels(const char* name, const at::Tensor& input,
                    std::initializer_list<OptionalTensor> vectors) {
  for (const auto& vector : vectors) {
    TORCH_CHECK(!given(vector) || (vector->dim() == 1 && vector->size(0) == input.size(1)), name,
                ": expected a number for each of the ", input.size(1),
                " channels (got a tensor of ", vector->sizes(), ")");
  }
}

void check_gradient(const char* name, const at::Tensor& grad_out, const at::Tensor& input,
                    const at::Tensor& mean, const at::Tensor& invstd) {
  check_input(name, input);
  TORCH_CHECK(grad_out.sizes() == input.sizes(), name,
              ": expected a gradient of the input's shape ", input.sizes(), " (got ",
              grad_out.sizes(), ")");
  TORCH_CHECK(mean.scalar_type() == invstd.scalar_type(),
              "mean and invstd need to have the same data types");
}

at::Tensor empty_as(const at::Tensor& input) {
  return at::empty_like(input, input.suggest_memory_format());
}

/// \param input [n, channels, *]. \return mean and 1 / deviation of each channel.
std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  check_input("batch_norm_stats", input);
  const auto dtype = at::toOpMathType(input.scalar_type());
  auto mean = empty_on(input.device(), {input.size(1)}, dtype);
  auto invstd = empty_on(input.device(), {input.size(1)}, dtype);
  statistics_kernel.launch(input.device(), input, eps, mean, invstd);
  return {mean, invstd};
}

/// invstd already includes eps.
at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const at::Tensor& mean,
                                 const at::Tensor& invstd, double /*eps*/, at::Tensor& out) {
  check_input("batch_norm_elemt", input);
  check_channels("batch_norm_elemt", input, {weight, bias, mean, invstd});
  TORCH_CHECK(out.scalar_type() == input.scalar_type(), "batch_norm_elemt: expected out of dtype ",
              input.scalar_type(), " (got ", out.scalar_type(), ")");
  at::native::resize_output(out, input.sizes());
  batch_norm_kernel.launch(input.device(), input, weight, bias, mean, invstd, out);
  return out;
}

at::Tensor batch_norm_elemt(const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double eps) {
  auto out = empty_as(input);
  return batch_norm_elemt_out(input, weight, bias, mean, invstd, eps, out);
}

/// \param means, invstds [processes, channels]. \param counts [processes], how many elements of
/// each channel they summarise. The running statistics, [channels], move by `momentum` towards the
/// overall ones. \return the overall mean and 1 / deviation.
std::tuple<at::Tensor, at::Tensor> gather_stats_with_counts(
    const at::Tensor& input, const at::Tensor& means, const at::Tensor& invstds,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, const at::Tensor& counts) {
  constexpr auto kName = "batch_norm_gather_stats_with_counts";
  check_input(kName, input);
  TORCH_CHECK(means.dim() == 2 && means.sizes() == invstds.sizes(), kName,
              ": expected means and invstds of one shape [processes, channels] (got ",
              means.sizes(), " and ", invstds.sizes(), ")");
  TORCH_CHECK(counts.dim() == 1 && counts.size(0) == means.size(0), kName,
              ": expected a count for each of the ", means.size(0), " rows (got a tensor of ",
              counts.sizes(), ")");
  TORCH_CHECK(given(running_mean) == given(running_var), kName,
              ": expected both running statistics or none");
  check_channels(kName, means, {running_mean, running_var});
  TORCH_CHECK(!given(running_mean) || counts.scalar_type() == running_mean->scalar_type(),
              "expected scalar type ", running_mean->scalar_type(), " but found ",
              counts.scalar_type());
  const auto dtype = at::toOpMathType(means.scalar_type());
  auto mean = empty_on(means.device(), {means.size(1)}, dtype);
  auto invstd = empty_on(means.device(), {means.size(1)}, dtype);
  gather_kernel.launch(means.device(), means, invstds, momentum, eps, counts,
                       running_mean.value_or(at::Tensor()), running_var.value_or(at::Tensor()),
                       mean, invstd);
  return {mean, invstd};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(
    const at::Tensor& input, const at::Tensor& means, const at::Tensor& invstds,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, std::int64_t count) {
  const auto& typed = given(running_mean) ? *running_mean : means;
  const auto counts = at::full({means.size(0)}, count, typed.options());
  return gather_stats_with_counts(input, means, invstds, running_mean, running_var, momentum, eps,
                                  counts);
}

/// \return for each channel the sums of grad_out and of grad_out * (input - mean), for the gradient
/// of the input, and the gradients of weight and bias; undefined if not wanted.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const OptionalTensor& weight, bool input_g, bool weight_g,
    bool bias_g) {
  check_gradient("batch_norm_backward_reduce", grad_out, input, mean, invstd);
  check_channels("batch_norm_backward_reduce", input, {mean, invstd, weight});
  const auto vector = [&](bool wanted, const at::Tensor& typed) {
    return wanted ? empty_on(input.device(), {input.size(1)}, typed.scalar_type()) : at::Tensor();
  };
  const auto& parameter = given(weight) ? *weight : mean;
  auto sum_dy = vector(input_g, mean);
  auto sum_dy_xmu = vector(input_g, mean);
  auto grad_weight = vector(weight_g, parameter);
  auto grad_bias = vector(bias_g, parameter);
  backward_sums_kernel.launch(input.device(), grad_out, input, mean, invstd, sum_dy, sum_dy_xmu,
                              grad_weight, grad_bias);
  return {sum_dy, sum_dy_xmu, grad_weight, grad_bias};
}

/// \param sum_dy, sum_dy_xmu of all processes. \param count int32, how many elements of each
/// channel each process has. \return the gradient of the input.
at::Tensor batch_norm_backward_elemt(const at::Tensor& grad_out, const at::Tensor& input,
                                     const at::Tensor& mean, const at::Tensor& invstd,
                                     const OptionalTensor& weight, const at::Tensor& sum_dy,
                                     const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  check_gradient("batch_norm_backward_elemt", grad_out, input, mean, invstd);
  check_channels("batch_norm_backward_elemt", input, {mean, invstd, weight, sum_dy, sum_dy_xmu});
  TORCH_CHECK(count.scalar_type() == at::kInt, "expected scalar type Int but found ",
              count.scalar_type());
  auto grad_input = empty_as(input);
  batch_norm_backward_kernel.launch(input.device(), grad_out, input, mean, invstd, weight, sum_dy,
                                    sum_dy_xmu, count, grad_input);
  return grad_input;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("batch_norm_stats", TORCH_FN(batch_norm_stats));
  m.impl("batch_norm_elemt", TORCH_FN(batch_norm_elemt));
  m.impl("batch_norm_elemt.out", TORCH_FN(batch_norm_elemt_out));
  m.impl("batch_norm_gather_stats", TORCH_FN(batch_norm_gather_stats));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats_with_counts));
  m.impl("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elemt));
}

}  // namespace openreg::ops
