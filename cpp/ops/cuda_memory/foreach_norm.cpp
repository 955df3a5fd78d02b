#include "ops/cuda_memory/foreach_norm.h"

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm_native.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "backend/stream.h"
#include "base/once.h"
#include "ops/cuda_memory/allocations.h"
#include "ops/cuda_memory/gpu.h"
#include "slot.h"

namespace openreg::ops::cuda_memory {

namespace {

/// Whether one kernel takes the whole list.
bool is_fast(at::TensorList tensors, const at::Scalar& order) {
  if (tensors.empty() || order.isComplex()) return false;
  const auto p = order.to<double>();
  if (p != 1 && p != 2 && !std::isinf(p)) return false;
  const auto& first = tensors[0];
  return at::isFloatingType(first.scalar_type()) &&
         std::ranges::all_of(tensors, [&](const at::Tensor& each) {
           return each.device() == first.device() && each.scalar_type() == first.scalar_type() &&
                  each.layout() == at::kStrided && each.is_non_overlapping_and_dense();
         });
}

std::vector<at::Tensor> foreach_norm(at::TensorList tensors, const at::Scalar& order,
                                     std::optional<at::ScalarType> dtype) {
  constexpr std::int64_t kChunk = 65536;
  if (!is_reproduced() || !is_fast(tensors, order))
    return at::native::foreach_tensor_norm_slow(tensors, order, dtype);
  std::int64_t chunks = 0;
  for (const auto& each : tensors) chunks = std::max(chunks, (each.numel() + kChunk - 1) / kChunk);
  Scratch scratch(backend::current_stream(tensors[0].device().index()));
  const auto partial = scratch.elements(static_cast<std::int64_t>(tensors.size()) * chunks,
                                        at::toOpMathType(dtype.value_or(tensors[0].scalar_type())));
  const Quiet quiet;
  return at::native::foreach_tensor_norm_slow(tensors, order, dtype);
}

}  // namespace

void register_foreach_norm() {
  static const Once once([] {
    static torch::Library library(torch::Library::IMPL, "aten", backend::kDispatchKey, __FILE__,
                                  __LINE__);
    library.impl("_foreach_norm.Scalar", TORCH_FN(foreach_norm));
  });
}

}  // namespace openreg::ops::cuda_memory
