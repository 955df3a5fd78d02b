// Normalisations: native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu.
#include <ATen/OpMathType.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>

#include "ops/cuda_memory/formulas.h"
#include "ops/cuda_memory/gpu.h"

namespace openreg::ops::cuda_memory {

namespace {

constexpr std::int64_t kWarpSize = 32;

at::ScalarType accumulated_in(const at::Tensor& input) {
  return at::toOpMathType(input.scalar_type());
}

/// Gradients of weights, from rows of `width`: if there are many short rows, first of 32 rows each.
/// Their sum replaces the gradient that has been allocated.
void allocate_partial_gradients(std::int64_t rows, std::int64_t width, const at::Tensor& of_weight,
                                const at::Tensor& of_bias, Scratch& scratch) {
  constexpr std::int64_t kManyRows = std::int64_t{64} << 10;
  constexpr std::int64_t kRowsOfBlock = 32;
  constexpr std::int64_t kMostBlocks = std::int64_t{32} << 10;
  if (rows <= kManyRows || width / kWarpSize >= gpu().multiprocessors / 2) return;
  const auto columns = (width + kWarpSize - 1) / kWarpSize;
  const auto blocks = std::min(kMostBlocks / columns, (rows + kRowsOfBlock - 1) / kRowsOfBlock);
  const auto partial = [&](const at::Tensor& gradient) {
    return gradient.defined() ? scratch.elements(blocks * width, gradient.scalar_type())
                              : c10::DataPtr();
  };
  const auto of_weights = partial(of_weight);
  const auto of_biases = partial(of_bias);
  for (const auto* gradient : {&of_weight, &of_bias}) {
    if (!gradient->defined()) continue;
    const auto sum = scratch.copy_of(*gradient);
    const auto like = [&](at::IntArrayRef sizes) {
      return at::from_blob(gradient->data_ptr(), sizes, gradient->options());
    };
    allocate_for_reduction_of(like({blocks, width}), like({width}), {0}, "sum", scratch);
  }
}

at::Tensor result(const Call& call, std::size_t number) {
  return number < call.results().size() ? call.results()[number] : at::Tensor();
}

}  // namespace

void allocate_for_layer_norm_backward(const Call& call, Scratch& scratch) {
  if (!call.has("mean")) return;
  const auto& mean = call.tensor("mean");
  const auto& input = call.tensor("input");
  if (mean.numel() == 0) return;
  allocate_partial_gradients(mean.numel(), input.numel() / mean.numel(), result(call, 1),
                             result(call, 2), scratch);
}

void allocate_for_rms_norm_backward(const Call& call, Scratch& scratch) {
  // grad, input, deviations, weight, and the gradients: the kernel has its own order.
  const auto all = call.tensors();
  if (all.size() < 6 || all[2].numel() == 0) return;
  allocate_partial_gradients(all[2].numel(), all[1].numel() / all[2].numel(), all.back(), {},
                             scratch);
}

void allocate_for_group_norm(const Call& call, Scratch& scratch) {
  if (!call.has("input") || !call.has("HxW")) return;
  const bool is_scaled =
      call.optional_tensor("weight").defined() || call.optional_tensor("bias").defined();
  if (call.integer("HxW") == 1 || !is_scaled) return;
  const auto channels = call.integer("N") * call.integer("C");
  const auto dtype = accumulated_in(call.tensor("input"));
  const auto scales = scratch.elements(channels, dtype);
  const auto shifts = scratch.elements(channels, dtype);
}

void allocate_for_group_norm_backward(const Call& call, Scratch& scratch) {
  if (!call.has("HxW") || call.integer("N") == 0) return;
  const auto dtype = accumulated_in(call.tensor("input"));
  const auto channels = call.integer("N") * call.integer("C");
  const auto groups = call.integer("N") * call.integer("group");
  const auto scale_sums = scratch.elements(channels, dtype);
  const auto bias_sums = scratch.elements(channels, dtype);
  if (!result(call, 0).defined()) return;
  const bool has_weight = call.optional_tensor("weight").defined();
  const auto second = scratch.elements(groups, dtype);
  const auto third = scratch.elements(groups, dtype);
  c10::DataPtr first;
  if (call.integer("HxW") != 1 && has_weight) first = scratch.elements(channels, dtype);
}

}  // namespace openreg::ops::cuda_memory
