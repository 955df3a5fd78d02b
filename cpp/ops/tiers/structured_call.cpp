#include "ops/tiers/structured_call.h"

#include <ATen/TensorIterator.h>

#include <exception>

#include "ops/launch/cost.h"
#include "ops/launch/probe.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/tiers/quirks.h"

namespace openreg::ops {

// Masks that without_masks() (index_by_mask.h) leaves become indices in the command; indices on the
// CPU are copied first. So neither can be planned by a signature.
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
                                   /*shrunk=*/!has_quirk(kernel.name(), Quirk::kNumbersMatchSizes));
  // The meta functions of iterators have refused what may not overlap.
  plan.waits = !result.passes || (!checked && writer.written_memory_overlaps());
  plan.warnings = result.warnings;
  plan.drops_warnings = result.warned;
  plan.cost = cost_of(kernel.name(), writer);
  return plan;
}

}  // namespace openreg::ops
