// Collectives that compute, in a dtype that Gloo supports (reduction.h).
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "backend/device.h"
#include "base/device_name.h"
#include "distributed/arguments.h"
#include "distributed/gloo_reduction.h"
#include "distributed/host_view.h"
#include "distributed/process_group.h"
#include "slot.h"

namespace openreg::distributed {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Works = GlooOperation::Works;
constexpr auto kForWorks = GlooOperation::Waits::kForWorks;

const Collective kAllReduce{OpType::ALLREDUCE, "occl::all_reduce"};
const Collective kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "occl::all_reduce_coalesced"};
const Collective kAllReduceSparse{OpType::_ALLREDUCE_SPARSE, "occl::all_reduce_sparse"};
const Collective kReduce{OpType::REDUCE, "occl::reduce"};
const Collective kReduceScatter{OpType::REDUCE_SCATTER, "occl::reduce_scatter", kForWorks};
const Collective kReduceScatterSingle{OpType::_REDUCE_SCATTER_BASE, "occl::reduce_scatter_single",
                                      kForWorks};
const Collective kReduceScatterCoalesced{OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                                         "occl::reduce_scatter_coalesced", kForWorks};

/// The options that are passed to Gloo.
template <class Options>
Options with_operation(Options opts, const Reduction& reduction) {
  opts.reduceOp = reduction.op();
  return opts;
}

at::Tensor reduced_input(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto input = staging.input(tensor, reduction.dtype());
  if (reduction.scales()) {
    if (input.is_same(tensor)) input = staging.scratch(input);
    reduction.before(input, staging);
  }
  return input;
}
at::Tensor reduced_in_out(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto both = staging.in_out(tensor, reduction.dtype(), /*own=*/reduction.scales());
  reduction.before(both, staging);
  staging.after([both, reduction]() mutable { reduction.after(both); });
  return both;
}
at::Tensor reduced_output(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto output = staging.output(tensor, reduction.dtype());
  staging.after([output, reduction]() mutable { reduction.after(output); });
  return output;
}

// PyTorch registers all collectives except for this kind of tensors.
std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> allreduce_sparse(
    at::TensorList tensors, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const c10::intrusive_ptr<c10d::ReduceOp>& op, const std::optional<at::Tensor>& sparse_indices,
    bool async_op, std::int64_t timeout) {
  auto list = tensors.vec();
  c10d::AllreduceOptions opts;
  opts.reduceOp = *op;
  opts.timeout = std::chrono::milliseconds(timeout);
  opts.sparseIndices = sparse_indices;
  opts.asyncOp = async_op;
  auto work = group->getBackend(backend::kDeviceType)->allreduce_sparse(list, opts);
  return {std::move(list), std::move(work)};
}

OPENREG_LIBRARY_IMPL_FOR(Sparse, c10d, m) {
  if constexpr (!backend::kHasSparseAllreduce) m.impl("allreduce_", TORCH_FN(allreduce_sparse));
}

}  // namespace

c10::intrusive_ptr<WorkOccl> ProcessGroupOccl::reduce_tensors(const Collective& what,
                                                              Tensors& tensors,
                                                              const c10d::AllreduceOptions& opts) {
  return launch({.what = what,
                 .device = device_of(what, {tensors}),
                 .outputs = tensors,
                 .movement = movement_of(bytes_in(tensors))},
                [&](Staging& staging) {
                  std::vector<std::pair<at::Tensor, c10d::AllreduceOptions>> calls;
                  for (const auto& tensor : tensors) {
                    const Reduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
                    calls.emplace_back(host_view(reduced_in_out(staging, tensor, reduction)),
                                       with_operation(opts, reduction));
                  }
                  return [calls = std::move(calls)](c10d::Backend& gloo, Works& works) {
                    for (const auto& [view, options] : calls) {
                      Tensors list{view};
                      works.push_back(gloo.allreduce(list, options));
                    }
                  };
                });
}

/// tensors: one, reduced in place.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allreduce(Tensors& tensors,
                                                           const c10d::AllreduceOptions& opts) {
  static_cast<void>(only(kAllReduce, tensors));
  return reduce_tensors(kAllReduce, tensors, opts);
}

/// tensors: one in COO layout, summed in place. The host waits, because the number of elements is
/// only known when the sum has been computed.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const auto& what = kAllReduceSparse;
  const auto& tensor = only(what, tensors);
  TORCH_CHECK_VALUE(
      tensor.layout() == at::kSparse && tensor.device().type() == backend::kDeviceType,
      "openreg: ", what.kernel.name(), " takes a tensor of ", kDeviceName,
      " in COO layout (got one on ", tensor.device(), " with layout ", tensor.layout(), ")");
  TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM, "openreg: ", what.kernel.name(),
                    " takes ReduceOp.SUM, as Gloo has no other reduction of sparse tensors");
  const Reduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto host = tensor.to(at::kCPU, reduction.dtype());
  auto work =
      launch({.what = what, .device = tensor.device(), .outputs = tensors, .host_waits = true},
             [&](Staging&) {
               return [host, opts](c10d::Backend& gloo, Works& works) {
                 Tensors list{host};
                 works.push_back(gloo.allreduce_sparse(list, opts));
               };
             });
  work->wait(kNoTimeout);
  tensor.copy_(host);
  return work;
}

/// tensors: any number, each reduced in place.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return reduce_tensors(kAllReduceCoalesced, tensors, opts);
}

/// tensors: one, written at the root.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::reduce(Tensors& tensors,
                                                        const c10d::ReduceOptions& opts) {
  const auto& tensor = only(kReduce, tensors);
  const Reduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
  const auto prepare = [&](Staging& staging) -> GlooOperation::Call {
    // On the other ranks Gloo overwrites its tensors, so those of the program are copied.
    auto own = opts.rootRank == rank_ ? reduced_in_out(staging, tensor, reduction)
                                      : staging.scratch(reduced_input(staging, tensor, reduction));
    return [view = host_view(own), options = with_operation(opts, reduction)](c10d::Backend& gloo,
                                                                              Works& works) {
      Tensors list{view};
      works.push_back(gloo.reduce(list, options));
    };
  };
  return launch({.what = kReduce,
                 .device = device_of(kReduce, {tensors}),
                 .outputs = tensors,
                 .movement = movement_of(bytes_in(tensors)),
                 .root = static_cast<int>(opts.rootRank)},
                prepare);
}

/// outputs: one; inputs: one list, with a tensor for each rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto& output = only(kReduceScatter, outputs);
  const auto& input = only(kReduceScatter, inputs);
  expect_one_for_each_rank(kReduceScatter, input.size(), size_);
  for (const auto& each : input) expect_same_dtype(kReduceScatter, each, output);
  TORCH_CHECK_VALUE(input[rank_].numel() == output.numel(),
                    "openreg: occl::reduce_scatter requires the input at the rank's own "
                    "index to have the output's size (got ",
                    input[rank_].sizes(), " for ", output.sizes(), ")");
  const Reduction reduction(opts.reduceOp, output.scalar_type(), size_);
  const bool alike = same_numel(input, output);
  Tensors buffers;  // NCCL's
  if (alike) buffers.push_back(at::empty({size_ * output.numel()}, output.options()));
  return launch(
      {.what = kReduceScatter,
       .device = device_of(kReduceScatter, {input, outputs}),
       .outputs = outputs,
       .movement = movement_of(bytes_in(input)),
       .buffers = std::move(buffers)},
      [&](Staging& staging) -> GlooOperation::Call {
        Tensors from;
        for (const auto& each : input) from.push_back(reduced_input(staging, each, reduction));
        if (alike) {
          Tensors views;
          for (const auto& each : from) views.push_back(host_view(each));
          return [to = host_view(reduced_output(staging, output, reduction)), views,
                  options = with_operation(opts, reduction)](c10d::Backend& gloo, Works& works) {
            Tensors to_list{to};
            std::vector<Tensors> from_lists{views};
            works.push_back(gloo.reduce_scatter(to_list, from_lists, options));
          };
        }
        // A reduction to each rank, in memory that Gloo may overwrite.
        Tensors views;
        for (int root = 0; root < size_; ++root) {
          const bool is_own = root == rank_;
          const auto own =
              is_own ? reduced_output(staging, output, reduction) : staging.scratch(from[root]);
          if (is_own) {
            staging.before([to = own.view_as(from[root]), part = from[root]] { to.copy_(part); });
          }
          views.push_back(host_view(own));
        }
        return [views, op = reduction.op(), timeout = opts.timeout](c10d::Backend& gloo,
                                                                    Works& works) {
          for (int root = 0; root < std::ssize(views); ++root) {
            Tensors list{views[root]};
            works.push_back(
                gloo.reduce(list, {.reduceOp = op, .rootRank = root, .timeout = timeout}));
          }
        };
      });
}

/// input: `size` times the output's elements.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

/// inputs[i]: `size` times the elements of outputs[i].
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto& what = outputs.size() == 1 ? kReduceScatterSingle : kReduceScatterCoalesced;
  expect_as_many(what, outputs, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_times(what, inputs[i], outputs[i], size_);
  return launch(
      {.what = what,
       .device = device_of(what, {outputs, inputs}),
       .outputs = outputs,
       .movement = movement_of(bytes_in(inputs))},
      [&](Staging& staging) {
        struct One {
          at::Tensor to;
          at::Tensor from;
          c10d::ReduceScatterOptions opts;
        };
        std::vector<One> calls;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          const Reduction reduction(opts.reduceOp, inputs[i].scalar_type(), size_);
          // Gloo splits along the first dimension.
          calls.push_back({host_view(reduced_output(staging, outputs[i], reduction)).view({-1}),
                           host_view(reduced_input(staging, inputs[i], reduction)).view({-1}),
                           with_operation(opts, reduction)});
        }
        return [calls](c10d::Backend& gloo, Works& works) mutable {
          for (auto& [to, from, options] : calls)
            works.push_back(gloo._reduce_scatter_base(to, from, options));
        };
      });
}

}  // namespace openreg::distributed
