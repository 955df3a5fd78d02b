// Dropout. The operator that PyTorch calls for such a device has no argument for a generator, so
// the fallback would draw from the one of the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <tuple>

namespace torch_acme {

namespace {

// The result, and the elements that are kept, which the backward pass uses.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double probability,
                                                  std::optional<bool> train) {
  const auto options = input.options().dtype(at::kBool);
  if (!train.value_or(true) || input.numel() == 0)
    return {input.clone(), at::ones_like(input, options)};
  const auto keep = at::empty_like(input, options).bernoulli_(1 - probability);
  const double scale = probability == 1 ? 0 : 1 / (1 - probability);
  return {input * keep * scale, keep};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_dropout", TORCH_FN(native_dropout)); }

}  // namespace torch_acme
