#include "ops/tiers/boxed_plan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <optional>
#include <string_view>

#include "backend/result_placement.h"
#include "base/settings.h"
#include "ops/launch/cost.h"
#include "ops/launch/plan_cache.h"
#include "ops/launch/probe.h"
#include "ops/tiers/shape_rules.h"
#include "ops/tiers/uncomputed.h"

namespace openreg::ops {

// Note [Tier 2]
//
// An asynchronous launch needs memory for the results before the kernel has run, so it must know
// their shapes; and wrong arguments must raise at the call. Structured operators have a meta
// function for both. For all others the kernel itself is run, once for each signature, on the
// calling thread and on tensors of zeros (Note [Probes]), and its results are the plan. This does
// not work for operators whose results' shapes depend on elements; PyTorch tags them, and they are
// left to tier 3, as are results that are views, sparse, or share memory, and calls whose probe
// fails: either there is an error to raise, or zeros are not in the kernel's domain.
//
// The command runs the functional kernel, and its results must lie in the device's memory: the
// probe shows which allocations of the kernel they come from, and the command serves those
// (backend/result_placement.h). A result that comes from none of them is copied.
namespace {

using Arguments = BoxedOperator::Arguments;
using Role = BoxedOperator::Role;

/// Whether a device tensor can replace it: it is strided, dense, and has no conj or neg bit.
bool is_plain(const at::Tensor& result) {
  return !result.defined() || (result.is_cpu() && result.layout() == at::kStrided &&
                               !result.is_nested() && !result.is_quantized() && !result.is_conj() &&
                               !result.is_neg() && result.is_non_overlapping_and_dense());
}

/// An out argument like that of the call, but on the CPU.
at::Tensor stand_in_for(const at::Tensor& out) {
  const auto options = out.options().device(c10::kCPU);
  if (out.numel() == 0) return at::empty_strided(out.sizes(), out.strides(), options);
  return at::empty({0}, options);
}

/// Runs the kernel on stand-ins and records the geometry of its results.
class Probing {
 public:
  Probing(const BoxedOperator& op, Arguments arguments) : op_(op), arguments_(arguments) {}

  /// False: it cannot be a command.
  bool run(std::span<const std::byte> stand_in) {
    ArgumentReader reader(stand_in);
    auto stack = op_.read_arguments(reader);
    const auto outs = put_outs(stack);
    const auto given = stack;
    const backend::AllocationLog log;
    op_.run_cpu_kernel(stack);
    results_.clear();
    allocations_.clear();
    storages_.clear();
    for (const auto& each : given) {
      if (each.isTensor() && each.toTensor().defined())
        storages_.push_back(each.toTensor().storage());
    }
    for (std::size_t i = 0; i < op_.results().size(); ++i) {
      if (op_.results()[i] == BoxedOperator::kNew && !note(stack[i].toTensor(), log)) return false;
    }
    for (const auto& out : outs) {
      if (out.is_conj() || out.is_neg()) return false;
      results_.push_back(Geometry::of(out));
    }
    reader.write_back_outputs();
    return true;
  }

  const c10::SmallVector<Geometry, 3>& results() const { return results_; }
  const c10::SmallVector<std::int32_t, 3>& allocations() const { return allocations_; }

 private:
  c10::SmallVector<at::Tensor, 3> put_outs(torch::jit::Stack& stack) const {
    c10::SmallVector<at::Tensor, 3> outs;
    for (std::size_t i = 0; i < op_.roles().size(); ++i) {
      if (op_.roles()[i] != Role::kOut) continue;
      const auto input = input_that_is(arguments_, i);
      outs.push_back(input < i ? stack[input].toTensor() : stand_in_for(arguments_[i].toTensor()));
      stack[i] = outs.back();
    }
    return outs;
  }

  // No two results, and no argument and result, may share a storage.
  bool note(const at::Tensor& result, const backend::AllocationLog& log) {
    if (!is_plain(result)) return false;
    results_.push_back(Geometry::of(result));
    if (result.defined()) results_.back().nbytes = result.nbytes();  // not those of its base
    const bool whole = result.defined() && result.numel() > 0 && result.storage_offset() == 0;
    allocations_.push_back(whole ? log.number_of(result.const_data_ptr())
                                 : backend::AllocationLog::kNone);
    if (!result.defined()) return true;
    for (const auto& storage : storages_) {
      if (storage.is_alias_of(result.storage())) return false;
    }
    storages_.push_back(result.storage());
    return true;
  }

  const BoxedOperator& op_;
  const Arguments arguments_;
  c10::SmallVector<Geometry, 3> results_;
  c10::SmallVector<std::int32_t, 3> allocations_;  // of new results
  c10::SmallVector<c10::Storage, 4> storages_;
};

/// Without computing, for calls that are too large to be tried: what the meta kernel returns.
std::optional<CallPlan> plan_by_meta(const BoxedOperator& op, const ArgumentWriter& writer,
                                     Arguments arguments) {
  if (computes() || writer.bytes_touched() <= kMostTried || op.outs() != 0) return std::nullopt;
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  if (!run_meta_kernel(op.handle(), stack)) return std::nullopt;
  CallPlan plan;
  plan.asynchronous = true;
  for (std::size_t i = 0; i < op.results().size(); ++i) {
    if (op.results()[i] != BoxedOperator::kNew) continue;
    if (!stack[i].isTensor()) return std::nullopt;
    const auto& result = stack[i].toTensor();
    plan.results.push_back(Geometry::of(result));
    if (result.defined()) plan.results.back().nbytes = result.nbytes();
    plan.allocations.push_back(backend::AllocationLog::kNone);
  }
  plan.cost = cost_of(op.kernel().name(), writer, plan.results);
  return plan;
}

CallPlan plan_by_probing(const BoxedOperator& op, ArgumentWriter& writer, Arguments arguments) {
  CallPlan plan;
  Probing probing(op, arguments);
  const auto run = [&](std::span<const std::byte> stand_in) { return probing.run(stand_in); };
  ProbeResult result;
  if (op.knows_sizes() && !writer.shares_written_memory())
    result = probe(writer, /*shrunk=*/true, run);
  if (!result.passes) {
    if (auto by_meta = plan_by_meta(op, writer, arguments)) return std::move(*by_meta);
    result = probe(writer, /*shrunk=*/false, run);
  }
  plan.asynchronous = result.passes;
  plan.drops_warnings = result.warned;
  plan.warnings = result.warnings;
  plan.results = probing.results();
  plan.allocations = probing.allocations();
  plan.cost = cost_of(op.kernel().name(), writer, plan.results);
  return plan;
}

/// The plan of a smaller call that is like this one, scaled to these sizes.
std::optional<CallPlan> plan_by_smaller_call(const BoxedOperator& op, Arguments arguments) {
  const auto call = SmallerCall::of(op, arguments);
  if (!call) return std::nullopt;
  const Arguments smaller(call->arguments());
  ArgumentWriter writer(op.kernel().name(), c10::Device(c10::kCPU));
  if (!op.write_arguments(writer, smaller)) return std::nullopt;
  const auto signature = writer.signature(&op);
  auto known = PlanCache::find(signature);
  if (!known) known = PlanCache::insert(signature, plan_by_probing(op, writer, smaller));
  CallPlan plan = *known;
  if (!plan.asynchronous || !call->scale(plan.results)) return std::nullopt;
  return plan;
}

}  // namespace

CallPlan plan_boxed(const BoxedOperator& op, ArgumentWriter& writer, Arguments arguments) {
  // The result is as large as the embedding, however few indices there are.
  if (!computes() && std::string_view(op.kernel().name()) == "aten::embedding_dense_backward") {
    if (auto by_meta = plan_by_meta(op, writer, arguments)) return std::move(*by_meta);
  }
  auto plan = plan_by_smaller_call(op, arguments);
  if (!plan) return plan_by_probing(op, writer, arguments);
  plan->cost = cost_of(op.kernel().name(), writer, plan->results);
  return std::move(*plan);
}

}  // namespace openreg::ops
