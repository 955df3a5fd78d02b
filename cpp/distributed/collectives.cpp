// The collectives: what each asks of Gloo. What only moves elements moves bytes, so that it takes
// all dtypes; what Gloo cannot add is added in a wider dtype (reduction.h).
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "backend/device.h"
#include "distributed/host_view.h"
#include "distributed/process_group.h"
#include "distributed/reduction.h"
#include "ops/wire/reach.h"

namespace openreg::distributed {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Works = GlooOperation::Works;

const Collective kBroadcast{OpType::BROADCAST, "occl::broadcast"};
const Collective kAllReduce{OpType::ALLREDUCE, "occl::all_reduce"};
const Collective kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "occl::all_reduce_coalesced"};
const Collective kReduce{OpType::REDUCE, "occl::reduce"};
const Collective kAllGather{OpType::ALLGATHER, "occl::all_gather"};
const Collective kAllGatherSingle{OpType::_ALLGATHER_BASE, "occl::all_gather_single"};
const Collective kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, "occl::all_gather_coalesced"};
const Collective kReduceScatter{OpType::REDUCE_SCATTER, "occl::reduce_scatter",
                                GlooOperation::Waits::kForWorks};
const Collective kReduceScatterSingle{OpType::_REDUCE_SCATTER_BASE, "occl::reduce_scatter_single",
                                      GlooOperation::Waits::kForWorks};
const Collective kReduceScatterCoalesced{OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                                         "occl::reduce_scatter_coalesced",
                                         GlooOperation::Waits::kForWorks};
const Collective kAllToAll{OpType::ALLTOALL, "occl::all_to_all"};
const Collective kAllToAllSingle{OpType::ALLTOALL_BASE, "occl::all_to_all_single"};
const Collective kGather{OpType::GATHER, "occl::gather"};
const Collective kScatter{OpType::SCATTER, "occl::scatter"};
const Collective kBarrier{OpType::BARRIER, "occl::barrier"};
// The first call between two ranks waits until they are connected.
constexpr auto kWaits = GlooOperation::Waits::kForCall;
const Collective kSend{OpType::SEND, "occl::send", kWaits};
const Collective kReceive{OpType::RECV, "occl::recv", kWaits};
const Collective kReceiveAny{OpType::RECVANYSOURCE, "occl::recv_any_source", kWaits};

/// The device of the tensors of a collective. Throws unless they are dense, of one openreg device,
/// and have their memory.
c10::Device device_of(const Collective& what, std::initializer_list<at::TensorList> lists) {
  std::optional<c10::Device> device;
  for (const auto& list : lists) {
    for (const auto& tensor : list) {
      TORCH_CHECK_VALUE(
          tensor.layout() == at::kStrided && tensor.device().type() == backend::kDeviceType,
          "openreg: ", what.kernel.name(), " takes dense openreg tensors (got one on ",
          tensor.device(), " with layout ", tensor.layout(), ")");
      TORCH_CHECK_VALUE(!device || *device == tensor.device(), "openreg: ", what.kernel.name(),
                        " takes tensors of one device (got ", device.value_or(tensor.device()),
                        " and ", tensor.device(), ")");
      device = tensor.device();
      ops::expect_memory(tensor);
    }
  }
  TORCH_CHECK_VALUE(device, "openreg: ", what.kernel.name(), " takes tensors (got none)");
  return *device;
}

const at::Tensor& only(const Collective& what, const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "openreg: ", what.kernel.name(),
                    " takes one tensor for each rank (got ", tensors.size(), ")");
  return tensors.front();
}
const Tensors& only(const Collective& what, const std::vector<Tensors>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, "openreg: ", what.kernel.name(),
                    " takes one list of tensors for each rank (got ", lists.size(), ")");
  return lists.front();
}
void expect_one_for_each_rank(const Collective& what, const Tensors& tensors, int size) {
  TORCH_CHECK_VALUE(std::ssize(tensors) == size, "openreg: ", what.kernel.name(),
                    " takes a list with a tensor for each rank (got ", tensors.size(),
                    " tensors, expected ", size, ")");
}
void expect_same_dtype(const Collective& what, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), "openreg: ", what.kernel.name(),
                   " takes tensors of one dtype (got ", a.scalar_type(), " and ", b.scalar_type(),
                   ")");
}
void expect_times(const Collective& what, const at::Tensor& larger, const at::Tensor& smaller,
                  int size) {
  expect_same_dtype(what, larger, smaller);
  TORCH_CHECK_VALUE(larger.numel() == smaller.numel() * size, "openreg: ", what.kernel.name(),
                    " takes one tensor of ", size, " times the size of the other (got ",
                    larger.sizes(), " and ", smaller.sizes(), ")");
}

/// Receives what has the sizes of `like`.
bool alike(const Tensors& tensors, const at::Tensor& like) {
  return std::ranges::all_of(
      tensors, [&](const at::Tensor& tensor) { return tensor.numel() == like.numel(); });
}

at::Tensor reduced_input(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto input = staging.input(tensor, reduction.dtype());
  if (reduction.scales()) {
    input = input.is_same(tensor) ? tensor.clone(at::MemoryFormat::Contiguous) : input;
    reduction.before(input);
    input = staging.input(input);
  }
  return input;
}
at::Tensor reduced_in_out(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto both = staging.in_out(tensor, reduction.dtype(), /*own=*/reduction.scales());
  reduction.before(both);
  staging.after([both, reduction]() mutable { reduction.after(both); });
  return both;
}
at::Tensor reduced_output(Staging& staging, const at::Tensor& tensor, const Reduction& reduction) {
  auto output = staging.output(tensor, reduction.dtype());
  staging.after([output, reduction]() mutable { reduction.after(output); });
  return output;
}

Tensors bytes_of_inputs(Staging& staging, const Tensors& tensors) {
  Tensors bytes;
  for (const auto& tensor : tensors) bytes.push_back(host_bytes(staging.input(tensor)));
  return bytes;
}
Tensors bytes_of_outputs(Staging& staging, const Tensors& tensors) {
  Tensors bytes;
  for (const auto& tensor : tensors) bytes.push_back(host_bytes(staging.output(tensor)));
  return bytes;
}

c10d::BarrierOptions within(std::chrono::milliseconds timeout) {
  c10d::BarrierOptions opts;
  opts.timeout = timeout;
  return opts;
}

/// Bytes of the parts along the first dimension.
std::vector<std::int64_t> bytes_of_splits(const at::Tensor& tensor,
                                          const std::vector<std::int64_t>& splits, int size) {
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % size == 0,
                      "openreg: occl::all_to_all_single without sizes takes tensors whose first "
                      "dimension is a multiple of the group's size (got ",
                      tensor.sizes(), " in a group of ", size, ")");
    return {};
  }
  TORCH_CHECK_VALUE(std::ssize(splits) == size,
                    "openreg: occl::all_to_all_single takes a size for "
                    "each rank (got ",
                    splits.size(), " sizes, expected ", size, ")");
  std::int64_t sum = 0;
  std::vector<std::int64_t> bytes;
  const auto row =
      tensor.size(0) == 0 ? 0 : static_cast<std::int64_t>(tensor.nbytes()) / tensor.size(0);
  for (const auto split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "openreg: a size must not be negative (got ", split, ")");
    sum += split;
    bytes.push_back(split * row);
  }
  TORCH_CHECK_VALUE(sum == tensor.size(0),
                    "openreg: occl::all_to_all_single takes sizes whose sum is "
                    "that of the first dimension (got a sum of ",
                    sum, " for ", tensor.sizes(), ")");
  return bytes;
}

}  // namespace

/// tensors: one, read at the root and written elsewhere.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::broadcast(Tensors& tensors,
                                                           const c10d::BroadcastOptions& opts) {
  const auto& tensor = only(kBroadcast, tensors);
  return launch(kBroadcast, device_of(kBroadcast, {tensors}), tensors, [&](Staging& staging) {
    const auto staged = opts.rootRank == rank_ ? staging.input(tensor) : staging.output(tensor);
    return [bytes = host_bytes(staged), opts](c10d::Backend& gloo) -> Works {
      Tensors list{bytes};
      return {gloo.broadcast(list, opts)};
    };
  });
}

c10::intrusive_ptr<WorkOccl> ProcessGroupOccl::reduce_tensors(const Collective& what,
                                                              Tensors& tensors,
                                                              const c10d::AllreduceOptions& opts) {
  return launch(what, device_of(what, {tensors}), tensors, [&](Staging& staging) {
    std::vector<std::pair<at::Tensor, c10d::AllreduceOptions>> calls;
    for (const auto& tensor : tensors) {
      const Reduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
      auto options = opts;
      options.reduceOp = reduction.op();
      calls.emplace_back(host_view(reduced_in_out(staging, tensor, reduction)), options);
    }
    return [calls](c10d::Backend& gloo) {
      Works works;
      for (const auto& [view, options] : calls) {
        Tensors list{view};
        works.push_back(gloo.allreduce(list, options));
      }
      return works;
    };
  });
}

/// tensors: one, reduced in place.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allreduce(Tensors& tensors,
                                                           const c10d::AllreduceOptions& opts) {
  static_cast<void>(only(kAllReduce, tensors));
  return reduce_tensors(kAllReduce, tensors, opts);
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
  return launch(kReduce, device_of(kReduce, {tensors}), tensors, [&](Staging& staging) {
    // Gloo uses the tensors of the others as it likes; those are the program's.
    auto own = opts.rootRank == rank_
                   ? reduced_in_out(staging, tensor, reduction)
                   : staging.input(reduced_input(staging, tensor, reduction).clone());
    auto options = opts;
    options.reduceOp = reduction.op();
    return [view = host_view(own), options](c10d::Backend& gloo) -> Works {
      Tensors list{view};
      return {gloo.reduce(list, options)};
    };
  });
}

/// outputs: one list, with a tensor for each rank, of different sizes if need be; inputs: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& opts) {
  const auto& output = only(kAllGather, outputs);
  const auto& input = only(kAllGather, inputs);
  expect_one_for_each_rank(kAllGather, output, size_);
  for (const auto& each : output) expect_same_dtype(kAllGather, each, input);
  TORCH_CHECK_VALUE(output[rank_].numel() == input.numel(),
                    "openreg: occl::all_gather takes an output of the input's size at the rank's "
                    "own place (got ",
                    output[rank_].sizes(), " for ", input.sizes(), ")");
  return launch(kAllGather, device_of(kAllGather, {output, inputs}), output,
                [&](Staging& staging) -> GlooOperation::Call {
                  if (alike(output, input)) {
                    return [to = bytes_of_outputs(staging, output),
                            from = host_bytes(staging.input(input)),
                            opts](c10d::Backend& gloo) -> Works {
                      std::vector<Tensors> to_lists{to};
                      Tensors from_list{from};
                      return {gloo.allgather(to_lists, from_list, opts)};
                    };
                  }
                  // Whether all ranks take this way only they know together: their lists are alike.
                  output[rank_].copy_(staging.input(input).view(output[rank_].sizes()));
                  Tensors parts;
                  for (int root = 0; root < size_; ++root)
                    parts.push_back(host_bytes(staging.in_out(output[root])));
                  return [parts, timeout = opts.timeout](c10d::Backend& gloo) {
                    Works works;
                    for (int root = 0; root < std::ssize(parts); ++root) {
                      Tensors list{parts[root]};
                      works.push_back(gloo.broadcast(list, {.rootRank = root, .timeout = timeout}));
                    }
                    return works;
                  };
                });
}

/// output: of size times the input's elements.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  expect_times(kAllGatherSingle, output, input, size_);
  return launch(kAllGatherSingle, device_of(kAllGatherSingle, {output, input}), {output},
                [&](Staging& staging) {
                  return [to = host_bytes(staging.output(output)),
                          from = host_bytes(staging.input(input)),
                          opts](c10d::Backend& gloo) mutable -> Works {
                    return {gloo._allgather_base(to, from, opts)};
                  };
                });
}

/// outputs: for each rank a list, with a tensor for each input.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  expect_one_for_each_rank(kAllGatherCoalesced, Tensors(outputs.size()), size_);
  Tensors all;
  for (const auto& list : outputs) all.insert(all.end(), list.begin(), list.end());
  TORCH_CHECK_VALUE(all.size() == inputs.size() * outputs.size(),
                    "openreg: occl::all_gather_coalesced takes as many outputs of each rank as "
                    "inputs (got ",
                    all.size(), " in all, expected ", inputs.size() * outputs.size(), ")");
  return launch(kAllGatherCoalesced, device_of(kAllGatherCoalesced, {all, inputs}), all,
                [&](Staging& staging) {
                  std::vector<std::pair<std::vector<Tensors>, Tensors>> calls;
                  for (std::size_t i = 0; i < inputs.size(); ++i) {
                    Tensors to;
                    for (const auto& list : outputs) to.push_back(list[i]);
                    calls.push_back(
                        {{bytes_of_outputs(staging, to)}, {host_bytes(staging.input(inputs[i]))}});
                  }
                  return [calls, opts](c10d::Backend& gloo) mutable {
                    Works works;
                    for (auto& [to, from] : calls) works.push_back(gloo.allgather(to, from, opts));
                    return works;
                  };
                });
}

/// outputs[i]: of size times the elements of inputs[i].
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const auto& what = kAllGatherCoalesced;
  expect_one_for_each_rank(what, outputs, static_cast<int>(inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_times(what, outputs[i], inputs[i], size_);
  return launch(what, device_of(what, {outputs, inputs}), outputs, [&](Staging& staging) {
    return [to = bytes_of_outputs(staging, outputs), from = bytes_of_inputs(staging, inputs),
            opts](c10d::Backend& gloo) mutable {
      Works works;
      for (std::size_t i = 0; i < to.size(); ++i)
        works.push_back(gloo._allgather_base(to[i], from[i], opts));
      return works;
    };
  });
}

/// outputs: one; inputs: one list, with a tensor for each rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto& output = only(kReduceScatter, outputs);
  const auto& input = only(kReduceScatter, inputs);
  expect_one_for_each_rank(kReduceScatter, input, size_);
  for (const auto& each : input) expect_same_dtype(kReduceScatter, each, output);
  TORCH_CHECK_VALUE(input[rank_].numel() == output.numel(),
                    "openreg: occl::reduce_scatter takes an input of the output's size at the "
                    "rank's own place (got ",
                    input[rank_].sizes(), " for ", output.sizes(), ")");
  const Reduction reduction(opts.reduceOp, output.scalar_type(), size_);
  return launch(kReduceScatter, device_of(kReduceScatter, {input, outputs}), outputs,
                [&](Staging& staging) -> GlooOperation::Call {
                  Tensors from;
                  for (const auto& each : input)
                    from.push_back(reduced_input(staging, each, reduction));
                  if (alike(input, output)) {
                    Tensors views;
                    for (const auto& each : from) views.push_back(host_view(each));
                    auto options = opts;
                    options.reduceOp = reduction.op();
                    return [to = host_view(reduced_output(staging, output, reduction)), views,
                            options](c10d::Backend& gloo) -> Works {
                      Tensors to_list{to};
                      std::vector<Tensors> from_lists{views};
                      return {gloo.reduce_scatter(to_list, from_lists, options)};
                    };
                  }
                  // A reduction to each rank, in memory that Gloo may use.
                  Tensors views;
                  for (int root = 0; root < size_; ++root) {
                    auto own = staging.input(from[root].clone(at::MemoryFormat::Contiguous));
                    if (root == rank_) {
                      own = reduced_output(staging, output, reduction);
                      own.view_as(from[root]).copy_(from[root]);
                    }
                    views.push_back(host_view(own));
                  }
                  return [views, op = reduction.op(), timeout = opts.timeout](c10d::Backend& gloo) {
                    Works works;
                    for (int root = 0; root < std::ssize(views); ++root) {
                      Tensors list{views[root]};
                      works.push_back(gloo.reduce(
                          list, {.reduceOp = op, .rootRank = root, .timeout = timeout}));
                    }
                    return works;
                  };
                });
}

/// input: of size times the output's elements.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

/// inputs[i]: of size times the elements of outputs[i].
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto& what = outputs.size() == 1 ? kReduceScatterSingle : kReduceScatterCoalesced;
  expect_one_for_each_rank(what, outputs, static_cast<int>(inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_times(what, inputs[i], outputs[i], size_);
  return launch(what, device_of(what, {outputs, inputs}), outputs, [&](Staging& staging) {
    struct One {
      at::Tensor to;
      at::Tensor from;
      c10d::ReduceScatterOptions opts;
    };
    std::vector<One> calls;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Reduction reduction(opts.reduceOp, inputs[i].scalar_type(), size_);
      auto options = opts;
      options.reduceOp = reduction.op();
      // Gloo cuts along the first dimension.
      calls.push_back({host_view(reduced_output(staging, outputs[i], reduction)).view({-1}),
                       host_view(reduced_input(staging, inputs[i], reduction)).view({-1}),
                       options});
    }
    return [calls](c10d::Backend& gloo) mutable {
      Works works;
      for (auto& [to, from, options] : calls)
        works.push_back(gloo._reduce_scatter_base(to, from, options));
      return works;
    };
  });
}

/// outputs, inputs: lists with a tensor for each rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& opts) {
  expect_one_for_each_rank(kAllToAll, outputs, size_);
  expect_one_for_each_rank(kAllToAll, inputs, size_);
  return launch(kAllToAll, device_of(kAllToAll, {outputs, inputs}), outputs, [&](Staging& staging) {
    return [to = bytes_of_outputs(staging, outputs), from = bytes_of_inputs(staging, inputs),
            opts](c10d::Backend& gloo) mutable -> Works { return {gloo.alltoall(to, from, opts)}; };
  });
}

/// to, from: how much of the first dimension comes from and goes to each rank; empty: equal parts.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::alltoall_base(at::Tensor& output,
                                                               at::Tensor& input,
                                                               std::vector<std::int64_t>& to,
                                                               std::vector<std::int64_t>& from,
                                                               const c10d::AllToAllOptions& opts) {
  expect_same_dtype(kAllToAllSingle, output, input);
  auto to_bytes = bytes_of_splits(output, to, size_);
  auto from_bytes = bytes_of_splits(input, from, size_);
  return launch(kAllToAllSingle, device_of(kAllToAllSingle, {output, input}), {output},
                [&](Staging& staging) {
                  return [out = host_bytes(staging.output(output)),
                          in = host_bytes(staging.input(input)), to_bytes, from_bytes,
                          opts](c10d::Backend& gloo) mutable -> Works {
                    return {gloo.alltoall_base(out, in, to_bytes, from_bytes, opts)};
                  };
                });
}

/// outputs: at the root one list, with a tensor for each rank; inputs: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::gather(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::GatherOptions& opts) {
  const auto& input = only(kGather, inputs);
  const bool root = opts.rootRank == rank_;
  TORCH_CHECK_VALUE(root || outputs.empty() || outputs.front().empty(),
                    "openreg: occl::gather takes outputs at the root only");
  const Tensors output = root ? only(kGather, outputs) : Tensors();
  if (root) expect_one_for_each_rank(kGather, output, size_);
  for (const auto& each : output) expect_same_dtype(kGather, each, input);
  return launch(
      kGather, device_of(kGather, {output, inputs}), root ? output : inputs, [&](Staging& staging) {
        return [to = bytes_of_outputs(staging, output), from = host_bytes(staging.input(input)),
                root, opts](c10d::Backend& gloo) -> Works {
          std::vector<Tensors> to_lists;
          if (root) to_lists.push_back(to);
          Tensors from_list{from};
          return {gloo.gather(to_lists, from_list, opts)};
        };
      });
}

/// outputs: one; inputs: at the root one list, with a tensor for each rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ScatterOptions& opts) {
  const auto& output = only(kScatter, outputs);
  const bool root = opts.rootRank == rank_;
  TORCH_CHECK_VALUE(root || inputs.empty() || inputs.front().empty(),
                    "openreg: occl::scatter takes inputs at the root only");
  const Tensors input = root ? only(kScatter, inputs) : Tensors();
  if (root) expect_one_for_each_rank(kScatter, input, size_);
  for (const auto& each : input) expect_same_dtype(kScatter, each, output);
  return launch(kScatter, device_of(kScatter, {outputs, input}), outputs, [&](Staging& staging) {
    return [to = host_bytes(staging.output(output)), from = bytes_of_inputs(staging, input), root,
            opts](c10d::Backend& gloo) -> Works {
      Tensors to_list{to};
      std::vector<Tensors> from_lists;
      if (root) from_lists.push_back(from);
      return {gloo.scatter(to_list, from_lists, opts)};
    };
  });
}

/// tensors: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::send(Tensors& tensors, int to, int tag) {
  const auto& tensor = only(kSend, tensors);
  return launch(kSend, device_of(kSend, {tensors}), tensors,
                [&](Staging& staging) {
                  return [bytes = host_bytes(staging.input(tensor)), to,
                          tag](c10d::Backend& gloo) -> Works {
                    Tensors list{bytes};
                    return {gloo.send(list, to, tag)};
                  };
                },
                {Lane::kSend, to});
}

/// tensors: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::recv(Tensors& tensors, int from, int tag) {
  const auto& tensor = only(kReceive, tensors);
  return launch(kReceive, device_of(kReceive, {tensors}), tensors,
                [&](Staging& staging) {
                  return [bytes = host_bytes(staging.output(tensor)), from,
                          tag](c10d::Backend& gloo) -> Works {
                    Tensors list{bytes};
                    return {gloo.recv(list, from, tag)};
                  };
                },
                {Lane::kReceive, from});
}

/// tensors: one. The host waits in wait(): it wants to know from which rank it has come.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::recvAnysource(Tensors& tensors, int tag) {
  const auto& tensor = only(kReceiveAny, tensors);
  const auto source = std::make_shared<std::atomic<int>>(-1);
  auto work = launch(
      kReceiveAny, device_of(kReceiveAny, {tensors}), tensors,
      [&](Staging& staging) {
        return [bytes = host_bytes(staging.output(tensor)), tag,
                source](c10d::Backend& gloo) -> Works {
          Tensors list{bytes};
          auto received = gloo.recvAnysource(list, tag);
          received->wait();
          *source = received->sourceRank();
          return {};
        };
      },
      {Lane::kReceive}, /*host_waits=*/true);
  work->set_source(source);
  return work;
}

c10::Device ProcessGroupOccl::device_for(const c10d::BarrierOptions& opts) const {
  if (opts.device && opts.device->type() == backend::kDeviceType && opts.device->has_index())
    return *opts.device;
  if (bound_device_id_) return *bound_device_id_;
  const auto index = opts.device_ids.empty() ? backend::current_device()
                                             : static_cast<c10::DeviceIndex>(opts.device_ids[0]);
  return {backend::kDeviceType, backend::resolve_device(index)};
}

/// The host waits in wait(), for the work before it too.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::barrier(const c10d::BarrierOptions& opts) {
  return launch(
      kBarrier, device_for(opts), {},
      [&](Staging&) {
        return [timeout = opts.timeout](c10d::Backend& gloo) -> Works {
          return {gloo.barrier(within(timeout))};
        };
      },
      {}, /*host_waits=*/true);
}

}  // namespace openreg::distributed
