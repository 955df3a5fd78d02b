#include "distributed/fake_peers.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace openreg::distributed {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<std::int64_t>;

/// A collective that completed at its call.
class CompletedWork final : public c10d::Work {
 public:
  CompletedWork(int rank, OpType type, const Tensors& outputs, int source = -1)
      : Work(rank, type),
        outputs_(outputs),
        source_(source),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(outputs));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  int sourceRank() const override { return source_; }
  Tensors result() override { return outputs_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const Tensors outputs_;
  const int source_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// The caller's tensors may require gradients, which no collective computes.
class NoAutograd {
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const at::NoGradGuard no_grad_;
};

/// Makes of a rank's values the reduction of `size` times the same.
void reduce_copies(const at::Tensor& tensor, const c10d::ReduceOp& op, int size) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      if (tensor.scalar_type() != at::kBool) tensor.mul_(size);
      return;
    case c10d::ReduceOp::PRODUCT:
      if (tensor.scalar_type() != at::kBool) tensor.pow_(size);
      return;
    case c10d::ReduceOp::BXOR:
      if (size % 2 == 0) tensor.zero_();
      return;
    case c10d::ReduceOp::AVG:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
      return;
    default:
      TORCH_CHECK(false, "openreg: a fake world cannot reduce CPU tensors by this ReduceOp");
  }
}

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  to.copy_(from.reshape(to.sizes()));
}

at::Tensor part(const at::Tensor& tensor, int number, int size) {
  return tensor.reshape({-1}).chunk(size)[number];
}

void gather_copies(const at::Tensor& output, const at::Tensor& input, int size) {
  if (input.numel() == 0) return;
  output.view({size, -1}).copy_(input.reshape({1, -1}).expand({size, input.numel()}));
}

/// The sizes along the first dimension; without splits, of equal parts.
Splits sizes_of(const at::Tensor& tensor, const Splits& splits, int size) {
  if (!splits.empty()) return splits;
  TORCH_CHECK(tensor.size(0) % size == 0, "openreg: all_to_all_single without sizes takes tensors ",
              "whose first dimension is a multiple of the group's size (got ", tensor.sizes(),
              " in a group of ", size, ")");
  return Splits(static_cast<std::size_t>(size), tensor.size(0) / size);
}

/// Copies as much as there is, and fills the rest with zeros. Along the first dimension.
void copy_what_fits(const at::Tensor& to, const at::Tensor& from) {
  const auto common = std::min(to.size(0), from.size(0));
  to.narrow(0, 0, common).copy_(from.narrow(0, 0, common));
  to.narrow(0, common, to.size(0) - common).zero_();
}

}  // namespace

FakePeers::FakePeers(int rank, int size, std::chrono::milliseconds timeout)
    : Backend(rank, size), options_(c10::make_intrusive<PeersOptions>("gloo", timeout)) {}

FakePeers::WorkPtr FakePeers::broadcast(Tensors& tensors, const c10d::BroadcastOptions&) {
  return c10::make_intrusive<CompletedWork>(rank_, OpType::BROADCAST, tensors);
}

FakePeers::WorkPtr FakePeers::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const NoAutograd guard;
  for (const auto& tensor : tensors) reduce_copies(tensor, opts.reduceOp, size_);
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLREDUCE, tensors);
}

FakePeers::WorkPtr FakePeers::allreduce_coalesced(Tensors& tensors,
                                                  const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

FakePeers::WorkPtr FakePeers::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions&) {
  const NoAutograd guard;
  for (const auto& tensor : tensors) tensor.copy_(tensor.coalesce().mul(size_));
  return c10::make_intrusive<CompletedWork>(rank_, OpType::_ALLREDUCE_SPARSE, tensors);
}

FakePeers::WorkPtr FakePeers::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const NoAutograd guard;
  if (opts.rootRank == rank_) reduce_copies(tensors.at(0), opts.reduceOp, size_);
  return c10::make_intrusive<CompletedWork>(rank_, OpType::REDUCE, tensors);
}

FakePeers::WorkPtr FakePeers::allgather(TensorLists& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions&) {
  const NoAutograd guard;
  const auto& input = inputs.at(0);
  for (const auto& output : outputs.at(0)) {
    if (output.numel() == input.numel()) {
      copy_elements(output, input);
    } else {
      copy_what_fits(output.view({-1}), input.reshape({-1}));
    }
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLGATHER, outputs[0]);
}

FakePeers::WorkPtr FakePeers::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions&) {
  const NoAutograd guard;
  gather_copies(output, input, size_);
  return c10::make_intrusive<CompletedWork>(rank_, OpType::_ALLGATHER_BASE, Tensors{output});
}

FakePeers::WorkPtr FakePeers::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions&) {
  const NoAutograd guard;
  Tensors all;
  for (const auto& list : outputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) copy_elements(list.at(i), inputs[i]);
    all.insert(all.end(), list.begin(), list.end());
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLGATHER_COALESCED, all);
}

FakePeers::WorkPtr FakePeers::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions&) {
  const NoAutograd guard;
  for (std::size_t i = 0; i < inputs.size(); ++i) gather_copies(outputs.at(i), inputs[i], size_);
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLGATHER_COALESCED, outputs);
}

FakePeers::WorkPtr FakePeers::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& opts) {
  const NoAutograd guard;
  copy_elements(outputs.at(0), inputs.at(0).at(rank_));
  reduce_copies(outputs[0], opts.reduceOp, size_);
  return c10::make_intrusive<CompletedWork>(rank_, OpType::REDUCE_SCATTER, outputs);
}

FakePeers::WorkPtr FakePeers::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

FakePeers::WorkPtr FakePeers::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const NoAutograd guard;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].numel() == 0) continue;
    copy_elements(outputs.at(i), part(inputs[i], rank_, size_));
    reduce_copies(outputs[i], opts.reduceOp, size_);
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::_REDUCE_SCATTER_BASE, outputs);
}

FakePeers::WorkPtr FakePeers::alltoall(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllToAllOptions&) {
  const NoAutograd guard;
  const auto own = inputs.at(rank_).reshape({-1}).clone();
  for (const auto& output : outputs) {
    const auto flat = output.reshape({-1});
    copy_what_fits(flat, own);
    if (!flat.is_alias_of(output)) copy_elements(output, flat);
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLTOALL, outputs);
}

FakePeers::WorkPtr FakePeers::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& to,
                                            std::vector<std::int64_t>& from,
                                            const c10d::AllToAllOptions&) {
  const NoAutograd guard;
  const auto sizes = sizes_of(output, to, size_);
  const auto own_sizes = sizes_of(input, from, size_);
  const auto own = input.narrow(
      0, std::accumulate(own_sizes.begin(), own_sizes.begin() + rank_, std::int64_t{0}),
      own_sizes.at(rank_));
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    copy_what_fits(output.narrow(0, begin, size), own);
    begin += size;
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::ALLTOALL_BASE, Tensors{output});
}

FakePeers::WorkPtr FakePeers::gather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& opts) {
  const NoAutograd guard;
  if (opts.rootRank != rank_)
    return c10::make_intrusive<CompletedWork>(rank_, OpType::GATHER, Tensors());
  for (const auto& output : outputs.at(0)) copy_elements(output, inputs.at(0));
  return c10::make_intrusive<CompletedWork>(rank_, OpType::GATHER, outputs[0]);
}

FakePeers::WorkPtr FakePeers::scatter(Tensors& outputs, TensorLists& inputs,
                                      const c10d::ScatterOptions& opts) {
  const NoAutograd guard;
  if (opts.rootRank == rank_) {
    copy_elements(outputs.at(0), inputs.at(0).at(rank_));
  } else {
    outputs.at(0).zero_();
  }
  return c10::make_intrusive<CompletedWork>(rank_, OpType::SCATTER, outputs);
}

FakePeers::WorkPtr FakePeers::send(Tensors& tensors, int, int) {
  return c10::make_intrusive<CompletedWork>(rank_, OpType::SEND, tensors);
}

FakePeers::WorkPtr FakePeers::recv(Tensors& tensors, int from, int) {
  const NoAutograd guard;
  tensors.at(0).zero_();
  return c10::make_intrusive<CompletedWork>(rank_, OpType::RECV, tensors, from);
}

FakePeers::WorkPtr FakePeers::recvAnysource(Tensors& tensors, int) {
  const NoAutograd guard;
  tensors.at(0).zero_();
  return c10::make_intrusive<CompletedWork>(rank_, OpType::RECVANYSOURCE, tensors,
                                            (rank_ + size_ - 1) % size_);
}

FakePeers::WorkPtr FakePeers::barrier(const c10d::BarrierOptions&) {
  return c10::make_intrusive<CompletedWork>(rank_, OpType::BARRIER, Tensors());
}

c10::intrusive_ptr<c10d::Backend> FakePeers::split(const c10::intrusive_ptr<c10d::Store>&,
                                                   const std::vector<int>& ranks,
                                                   const c10::intrusive_ptr<Options>& opts) {
  const auto found = std::ranges::find(ranks, rank_);
  if (found == ranks.end()) return nullptr;
  return c10::make_intrusive<FakePeers>(static_cast<int>(found - ranks.begin()),
                                        static_cast<int>(ranks.size()), opts->timeout);
}

}  // namespace openreg::distributed
