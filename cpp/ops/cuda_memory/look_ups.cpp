// Gradients of look-ups: native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu, Indexing.cu.
#include <ATen/OpMathType.h>

#include <algorithm>
#include <vector>

#include "ops/cuda_memory/formulas.h"

namespace openreg::ops::cuda_memory {

namespace {

/// CUB's radix sort of indices with their places.
void allocate_for_sort_of_indices(std::int64_t count, at::ScalarType dtype, Scratch& scratch) {
  const auto range = scratch.elements(count, dtype);
  const auto keys = scratch.elements(count, dtype);
  const auto values = scratch.elements(count, dtype);
}

}  // namespace

void allocate_for_embedding_backward(const Call& call, Scratch& scratch) {
  constexpr std::int64_t kFew = 3072;
  constexpr std::int64_t kRowsOfThread = 10;
  if (!call.has("num_weights")) return;
  const auto& grad = call.tensor("grad_output");
  const auto& indices = call.tensor("indices");
  const auto count = indices.numel();
  const bool counts = call.optional_flag("scale_grad_by_freq", false);
  c10::DataPtr contiguous_indices, contiguous_grad;
  if (!indices.is_contiguous()) contiguous_indices = scratch.copy_of(indices);
  if (!grad.is_contiguous()) contiguous_grad = scratch.copy_of(grad);
  if ((count <= kFew && !counts) || count == 0) return;
  const auto dtype = indices.scalar_type();
  const auto sorted = scratch.elements(count, dtype);
  const auto places = scratch.elements(count, dtype);
  allocate_for_sort_of_indices(count, dtype, scratch);
  c10::DataPtr frequencies;
  if (counts) frequencies = scratch.elements(count, dtype);

  const auto offsets = scratch.elements(count, dtype);
  const auto segments = scratch.bytes(8);
  { const auto unique = scratch.elements(count, dtype); }
  const auto most_segments = std::min(count, call.integer("num_weights"));
  const auto parts = scratch.elements(most_segments, dtype);
  const auto part_offsets = scratch.elements(most_segments, dtype);
  const auto parts_in_all = scratch.bytes(8);
  const auto most_parts = count / kRowsOfThread + most_segments;
  const auto starts = scratch.elements(most_parts, dtype);
  const auto sums =
      scratch.elements(most_parts * grad.size(-1), at::toOpMathType(grad.scalar_type()));
}

void allocate_for_index_put(const Call& call, Scratch& scratch) {
  if (!call.has("indices") || !call.optional_flag("accumulate", false)) return;
  const auto& self = call.tensor("self");
  const auto& values = call.tensor("values");
  // The indices broadcast to one shape; a dimension without an index lies beside them.
  std::int64_t count = 1;
  std::vector<std::int64_t> shape;
  std::int64_t indexed = 0;
  std::int64_t selected = 1;
  const auto indices = call.argument("indices").toListRef();
  for (const auto& element : indices) {
    const auto dim = indexed++;
    if (!element.isTensor() || !element.toTensor().defined()) continue;
    const auto index = element.toTensor();
    selected *= self.size(dim);
    const auto sizes = index.sizes();
    if (shape.size() < sizes.size()) shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      auto& size = shape[shape.size() - sizes.size() + i];
      size = std::max(size, sizes[i]);
    }
  }
  for (const auto size : shape) count *= size;
  if (count == 0 || selected == 0 || self.numel() == 0) return;
  const auto slice = self.numel() / selected;
  c10::DataPtr copy, expanded;
  if (!self.is_contiguous()) copy = scratch.copy_of(self);
  const auto linear = scratch.elements(count, at::kLong);
  if (values.numel() < count * slice || !values.is_contiguous())
    expanded = scratch.elements(count * slice, values.scalar_type());
  const auto sorted = scratch.elements(count, at::kLong);
  const auto places = scratch.elements(count, at::kLong);
  allocate_for_sort_of_indices(count, at::kLong, scratch);
}

}  // namespace openreg::ops::cuda_memory
