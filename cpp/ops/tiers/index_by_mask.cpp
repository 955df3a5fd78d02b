#include "ops/tiers/index_by_mask.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>

#include "backend/device.h"

namespace openreg::ops {

namespace {

/// Where a mask is true, on the device. The host does not wait for the device if the mask is its
/// own.
at::Tensor places(const at::Tensor& mask, c10::Device device) {
  if (!mask.is_cpu()) return at::nonzero(mask);
  auto found = at::empty({0}, at::TensorOptions(at::kLong).pinned_memory(true));
  return at::nonzero_out(found, mask).to(device, /*non_blocking=*/true);
}

// Dtypes that index takes, and masked_select does not.
bool can_only_be_indexed(at::ScalarType dtype) {
  return at::isBarebonesUnsignedType(dtype) || at::isBitsType(dtype) ||
         dtype == at::kFloat4_e2m1fn_x2;
}

}  // namespace

c10::List<std::optional<at::Tensor>> without_masks(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  bool masked = false;
  std::int64_t dim = 0;  // of self, that the next index is for
  for (const std::optional<at::Tensor> index : indices) {
    const bool is_mask =
        index && index->defined() && index->scalar_type() == at::kBool && index->dim() > 0;
    const std::int64_t end = dim + (is_mask ? index->dim() : 1);
    const bool known = is_mask && (index->is_cpu() || backend::is_openreg(*index));
    if (is_mask && (!known || end > self.dim() ||
                    index->sizes() != self.sizes().slice(static_cast<std::size_t>(dim),
                                                         static_cast<std::size_t>(end - dim))))
      return indices;
    masked |= is_mask;
    dim = end;
  }
  if (!masked) return indices;
  c10::List<std::optional<at::Tensor>> expanded;
  for (const std::optional<at::Tensor> index : indices) {
    if (!index || !index->defined() || index->scalar_type() != at::kBool || index->dim() == 0) {
      expanded.push_back(index);
      continue;
    }
    const auto elements = places(*index, self.device());
    for (std::int64_t i = 0; i < index->dim(); ++i) expanded.push_back(elements.select(1, i));
  }
  return expanded;
}

std::optional<at::Tensor> selected_by_mask(const at::Tensor& self,
                                           const c10::List<std::optional<at::Tensor>>& indices) {
  if (indices.size() != 1 || self.dim() == 0 || can_only_be_indexed(self.scalar_type()))
    return std::nullopt;
  const std::optional<at::Tensor> mask = indices[0];
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool ||
      mask->device() != self.device() || mask->sizes() != self.sizes())
    return std::nullopt;
  return at::masked_select(self, *mask);
}

}  // namespace openreg::ops
