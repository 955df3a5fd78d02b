#include "ops/tiers/structured_call.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>

#include <exception>

#include "ops/launch/cost.h"
#include "ops/launch/probe.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/tiers/quirks.h"

namespace openreg::ops {

namespace {

/// Where a mask is true, on the device. The host does not wait for the device if the mask is its
/// own.
at::Tensor places(const at::Tensor& mask, c10::Device device) {
  if (!mask.is_cpu()) return at::nonzero(mask);
  auto found = at::empty({0}, at::TensorOptions(at::kLong).pinned_memory(true));
  return at::nonzero_out(found, mask).to(device, /*non_blocking=*/true);
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

namespace {

// Dtypes that index takes, and masked_select does not.
bool can_only_be_indexed(at::ScalarType dtype) {
  return at::isBarebonesUnsignedType(dtype) || at::isBitsType(dtype) ||
         dtype == at::kFloat4_e2m1fn_x2;
}

}  // namespace

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

// Masks that without_masks() leaves become indices in the command; indices on the CPU are copied
// first. So neither can be planned by a signature.
void StructuredCall::add(const c10::List<std::optional<at::Tensor>>& indices) {
  for (const std::optional<at::Tensor> index : indices) {
    if (!index || !index->defined()) continue;
    const auto dtype = index->scalar_type();
    if (!backend::is_openreg(*index) || dtype == at::kBool || dtype == at::kByte)
      plannable_ = false;
    else
      add(*index);
  }
}

bool OutputSizes::is_as(const at::Tensor& output, const Geometry& before) {
  return output.sizes() == at::IntArrayRef(before.sizes) &&
         output.strides() == at::IntArrayRef(before.strides);
}

std::vector<c10::Warning> warnings_of_meta(c10::function_ref<void(bool again)> meta) {
  std::vector<c10::Warning> first;
  std::exception_ptr refusal;
  {
    const CollectedWarnings collected;
    try {
      meta(false);
    } catch (...) {
      refusal = std::current_exception();
    }
    first = collected.get();
  }
  if (refusal) {
    for (const auto& warning : first) c10::warn(warning);
    std::rethrow_exception(refusal);
  }
  if (first.empty()) return {};
  std::vector<c10::Warning> second;
  {
    const CollectedWarnings collected;
    meta(true);
    second = collected.get();
  }
  return report_once_only(first, second);
}

std::optional<at::ScalarType> floating_computation(const at::impl::MetaBase& object) {
  const auto dtype = static_cast<const at::TensorIteratorBase&>(object).common_dtype();
  if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) return std::nullopt;
  return dtype;
}

CallPlan plan_structured(const OpKernel& kernel, ArgumentWriter& writer, bool checked) {
  CallPlan plan;
  // Other meta functions leave the check of some sizes to kernels (the bias of addmm).
  const auto level = has_quirk(kernel.name(), Quirk::kMetaChecksAll) ? SignatureLevel::kDtypes
                     : checked                                       ? SignatureLevel::kIntegers
                                                                     : SignatureLevel::kEqualSizes;
  const auto result = probe_kernel(kernel, writer, level,
                                   /*shrunk=*/!has_quirk(kernel.name(), Quirk::kNeedsSizes));
  // The meta functions of iterators have refused what may not overlap.
  plan.waits = !result.passes || (!checked && writer.written_memory_overlaps());
  plan.warnings = result.warnings;
  plan.drops_warnings = result.warned;
  plan.cost = cost_of(kernel.name(), writer);
  return plan;
}

}  // namespace openreg::ops
