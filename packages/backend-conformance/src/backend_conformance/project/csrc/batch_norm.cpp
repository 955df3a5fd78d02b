// Batch normalisation. This operator changes its running statistics, but its schema does not say
// so. The fallback would change copies of them. Two other operators compute the same and declare
// it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <torch/library.h>

#include <tuple>

namespace torch_acme {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
    const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
    double eps) {
  if (!running_mean || !running_mean->defined())
    return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  at::Tensor mean = *running_mean;
  at::Tensor variance = *running_var;
  return at::_native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
}

}  // namespace torch_acme
