// Collectives that only move elements. They move bytes, so they take all dtypes.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/host_view.h"
#include "distributed/process_group.h"

namespace openreg::distributed {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Works = GlooOperation::Works;

const Collective kBroadcast{OpType::BROADCAST, "occl::broadcast"};
const Collective kAllGather{OpType::ALLGATHER, "occl::all_gather"};
const Collective kAllGatherSingle{OpType::_ALLGATHER_BASE, "occl::all_gather_single"};
const Collective kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, "occl::all_gather_coalesced"};
const Collective kAllToAll{OpType::ALLTOALL, "occl::all_to_all"};
const Collective kAllToAllSingle{OpType::ALLTOALL_BASE, "occl::all_to_all_single"};
const Collective kGather{OpType::GATHER, "occl::gather"};
const Collective kScatter{OpType::SCATTER, "occl::scatter"};
// The first call between two ranks waits until they are connected.
constexpr auto kWaits = GlooOperation::Waits::kForCall;
const Collective kSend{OpType::SEND, "occl::send", kWaits};
const Collective kReceive{OpType::RECV, "occl::recv", kWaits};
const Collective kReceiveAny{OpType::RECVANYSOURCE, "occl::recv_any_source", kWaits};

using Bytes = std::vector<std::int64_t>;
// Of calls whose parts are moved or not, each by its size.
constexpr std::int64_t kMessages = 0;

/// The bytes of each part along the first dimension; without splits, of equal parts.
Bytes bytes_of_splits(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int size) {
  const auto all = static_cast<std::int64_t>(tensor.nbytes());
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.numel() % size == 0,
                      "openreg: occl::all_to_all_single without sizes takes tensors whose number "
                      "of elements is a multiple of the group's size (got ",
                      tensor.sizes(), " in a group of ", size, ")");
    return Bytes(static_cast<std::size_t>(size), all / size);
  }
  TORCH_CHECK_VALUE(tensor.dim() > 0,
                    "openreg: occl::all_to_all_single with sizes takes tensors with a dimension "
                    "to split (got one without dimensions)");
  TORCH_CHECK_VALUE(std::ssize(splits) == size,
                    "openreg: occl::all_to_all_single takes a size for "
                    "each rank (got ",
                    splits.size(), " sizes, expected ", size, ")");
  std::int64_t sum = 0;
  Bytes bytes;
  const auto row = tensor.size(0) == 0 ? 0 : all / tensor.size(0);
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

Bytes bytes_of(at::TensorList tensors) {
  Bytes bytes;
  for (const auto& tensor : tensors) bytes.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  return bytes;
}

/// The parts of `tensor`, in the order of its elements.
Tensors messages_of(const at::Tensor& tensor, const Bytes& bytes) {
  const auto flat = tensor.is_contiguous() ? tensor.view({-1}) : tensor;
  const auto unit = static_cast<std::int64_t>(std::max<std::size_t>(
      flat.dim() == 1 ? tensor.itemsize() : tensor.nbytes() / tensor.size(0), 1));
  Tensors messages;
  std::int64_t begin = 0;
  for (const auto each : bytes) {
    const auto length = each / unit;
    TORCH_CHECK_VALUE(length * unit == each,
                      "openreg: occl::all_to_all_single exchanges parts of rows only if its "
                      "tensors are contiguous");
    messages.push_back(flat.narrow(0, begin, length));
    begin += length;
  }
  return messages;
}

/// The tensor into which NCCL gathers what is then copied to a list of tensors of one size.
Tensors buffers_of_nccl(const Collective& what, const Tensors& outputs) {
  if (what.type != OpType::ALLGATHER || !same_numel(outputs, outputs.front())) return {};
  return {at::empty({std::ssize(outputs) * outputs.front().numel()}, outputs.front().options())};
}

void expect_transfer(const Collective& what, int peer, int tag, int size) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < size, "openreg: ", what.kernel.name(),
                    " takes a rank of the group (got ", peer, ", expected 0 to ", size - 1, ")");
  TORCH_CHECK_VALUE(tag >= 0, "openreg: ", what.kernel.name(), " takes a tag of at least 0 (got ",
                    tag, ")");
}

}  // namespace

c10::intrusive_ptr<WorkOccl> ProcessGroupOccl::move_bytes(const Collective& what, const Tensors& to,
                                                          const Tensors& from, Move call,
                                                          Movement movement, Channel channel,
                                                          bool host_waits, int root) {
  // The message of a transfer that moves nothing is a byte.
  const bool token = movement == Movement::kNone && channel.kind != Channel::kCollectives;
  const auto bytes_of_staged = [&](const at::Tensor& staged) {
    return token ? at::zeros({1}, at::TensorOptions(at::kByte)) : host_bytes(staged);
  };
  return launch({.what = what,
                 .device = device_of(what, {to, from}),
                 .outputs = to.empty() ? from : to,
                 .movement = movement,
                 .buffers = buffers_of_nccl(what, to),
                 .channel = channel,
                 .host_waits = host_waits,
                 .root = root},
                [&](Staging& staging) {
                  Tensors to_bytes;
                  for (const auto& each : to)
                    to_bytes.push_back(bytes_of_staged(staging.output(each)));
                  Tensors from_bytes;
                  for (const auto& each : from)
                    from_bytes.push_back(bytes_of_staged(staging.input(each)));
                  return [call = std::move(call), to_bytes = std::move(to_bytes),
                          from_bytes = std::move(from_bytes)](c10d::Backend& gloo,
                                                              Works& works) mutable {
                    call(gloo, works, to_bytes, from_bytes);
                  };
                });
}

/// tensors: one, read at the root and written elsewhere.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::broadcast(Tensors& tensors,
                                                           const c10d::BroadcastOptions& opts) {
  static_cast<void>(only(kBroadcast, tensors));
  const bool root = opts.rootRank == rank_ || !has_peers();  // others have the same values
  return move_bytes(
      kBroadcast, root ? Tensors() : tensors, root ? tensors : Tensors(),
      [root, opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
        works.push_back(gloo.broadcast(root ? from : to, opts));
      },
      movement_of(bytes_in(tensors)), {}, /*host_waits=*/false, static_cast<int>(opts.rootRank));
}

/// outputs: one list, with a tensor for each rank, possibly of different sizes; inputs: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& opts) {
  const auto& output = only(kAllGather, outputs);
  const auto& input = only(kAllGather, inputs);
  expect_one_for_each_rank(kAllGather, output.size(), size_);
  for (const auto& each : output) expect_same_dtype(kAllGather, each, input);
  TORCH_CHECK_VALUE(output[rank_].numel() == input.numel(),
                    "openreg: occl::all_gather requires the output at the rank's own index to "
                    "have the input's size (got ",
                    output[rank_].sizes(), " for ", input.sizes(), ")");
  const auto movement = movement_of(bytes_in(output));
  if (same_numel(output, input) || !has_peers()) {
    return move_bytes(
        kAllGather, output, inputs,
        [opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
          TensorLists lists{to};
          works.push_back(gloo.allgather(lists, from, opts));
        },
        movement);
  }
  // All ranks get here, because their lists are alike.
  return launch({.what = kAllGather,
                 .device = device_of(kAllGather, {output, inputs}),
                 .outputs = output,
                 .movement = movement},
                [&](Staging& staging) {
                  const auto own = staging.input(input).view(output[rank_].sizes());
                  Tensors parts;
                  for (int rank = 0; rank < size_; ++rank) {
                    auto part = staging.in_out(output[rank]);
                    if (rank == rank_) staging.before([part, own] { part.copy_(own); });
                    parts.push_back(host_bytes(part));
                  }
                  return [parts, timeout = opts.timeout](c10d::Backend& gloo, Works& works) {
                    for (int root = 0; root < std::ssize(parts); ++root) {
                      Tensors list{parts[root]};
                      works.push_back(gloo.broadcast(list, {.rootRank = root, .timeout = timeout}));
                    }
                  };
                });
}

/// output: `size` times the input's elements.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

/// outputs[i]: `size` times the elements of inputs[i].
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const auto& what = outputs.size() == 1 ? kAllGatherSingle : kAllGatherCoalesced;
  expect_as_many(what, outputs, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_times(what, outputs[i], inputs[i], size_);
  return move_bytes(
      what, outputs, inputs,
      [opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
        for (std::size_t i = 0; i < to.size(); ++i)
          works.push_back(gloo._allgather_base(to[i], from[i], opts));
      },
      movement_of(bytes_in(outputs)));
}

/// outputs: for each rank a list, with a tensor for each input.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  expect_one_for_each_rank(kAllGatherCoalesced, outputs.size(), size_);
  Tensors all;
  for (const auto& list : outputs) {
    expect_as_many(kAllGatherCoalesced, list, inputs);
    all.insert(all.end(), list.begin(), list.end());
  }
  return move_bytes(
      kAllGatherCoalesced, all, inputs,
      [opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
        for (std::size_t i = 0; i < from.size(); ++i) {
          TensorLists lists(1);
          for (auto at = i; at < to.size(); at += from.size()) lists.front().push_back(to[at]);
          Tensors input{from[i]};
          works.push_back(gloo.allgather(lists, input, opts));
        }
      },
      movement_of(bytes_in(all)));
}

/// outputs, inputs: lists with a tensor for each rank, of any sizes. Gloo exchanges parts of one
/// tensor, even if the sizes are equal here, because those of other ranks need not be.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& opts) {
  expect_one_for_each_rank(kAllToAll, outputs.size(), size_);
  expect_one_for_each_rank(kAllToAll, inputs.size(), size_);
  for (const auto& list : {outputs, inputs}) {
    for (const auto& each : list) expect_same_dtype(kAllToAll, each, inputs.front());
  }
  return exchange(kAllToAll, outputs, inputs, outputs, inputs, opts);
}

/// to: how much of the output's first dimension comes from each rank; from: how much of the input's
/// goes to each rank; empty: equal parts.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::alltoall_base(at::Tensor& output,
                                                               at::Tensor& input,
                                                               std::vector<std::int64_t>& to,
                                                               std::vector<std::int64_t>& from,
                                                               const c10d::AllToAllOptions& opts) {
  expect_same_dtype(kAllToAllSingle, output, input);
  auto to_splits = bytes_of_splits(output, to, size_);
  auto from_splits = bytes_of_splits(input, from, size_);
  if (movement_of(kMessages) != Movement::kInPlace) {
    return exchange(kAllToAllSingle, {output}, {input}, messages_of(output, to_splits),
                    messages_of(input, from_splits), opts);
  }
  return move_bytes(
      kAllToAllSingle, {output}, {input},
      [to_splits = std::move(to_splits), from_splits = std::move(from_splits), opts](
          c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) mutable {
        works.push_back(gloo.alltoall_base(to[0], from[0], to_splits, from_splits, opts));
      },
      Movement::kInPlace);
}

/// to, from: the messages of each rank, which are parts of the outputs and inputs. Other ranks have
/// others of other sizes, so all of them make the same call whatever is moved.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::exchange(const Collective& what,
                                                          const Tensors& outputs,
                                                          const Tensors& inputs, const Tensors& to,
                                                          const Tensors& from,
                                                          const c10d::AllToAllOptions& opts) {
  return launch({.what = what,
                 .device = device_of(what, {outputs, inputs}),
                 .outputs = outputs,
                 .movement = movement_of(kMessages)},
                [&](Staging& staging) {
                  const auto bytes_moved = [&](const Tensors& messages) {
                    auto bytes = bytes_of(messages);
                    for (std::size_t i = 0; i < messages.size(); ++i)
                      if (!staging.moves(messages[i], messages.size())) bytes[i] = 0;
                    return bytes;
                  };
                  return [to = host_bytes(staging.packed_output(to)), to_bytes = bytes_moved(to),
                          from = host_bytes(staging.packed_input(from)),
                          from_bytes = bytes_moved(from),
                          opts](c10d::Backend& gloo, Works& works) mutable {
                    works.push_back(gloo.alltoall_base(to, from, to_bytes, from_bytes, opts));
                  };
                });
}

/// outputs: at the root one list, with a tensor of the input's shape for each rank; inputs: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::gather(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::GatherOptions& opts) {
  const auto& input = only(kGather, inputs);
  const bool root = opts.rootRank == rank_;
  TORCH_CHECK_VALUE(root || outputs.empty() || outputs.front().empty(),
                    "openreg: occl::gather takes outputs at the root only");
  const Tensors output = root ? only(kGather, outputs) : Tensors();
  if (root) expect_one_for_each_rank(kGather, output.size(), size_);
  expect_like(kGather, output, input);
  return move_bytes(
      kGather, output, inputs,
      [root, opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
        TensorLists lists;
        if (root) lists.push_back(to);
        works.push_back(gloo.gather(lists, from, opts));
      },
      movement_of(size_ * bytes_in(inputs)), {}, /*host_waits=*/false,
      static_cast<int>(opts.rootRank));
}

/// outputs: one; inputs: at the root one list, with a tensor of the output's shape for each rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ScatterOptions& opts) {
  const auto& output = only(kScatter, outputs);
  const bool root = opts.rootRank == rank_;
  TORCH_CHECK_VALUE(root || inputs.empty() || inputs.front().empty(),
                    "openreg: occl::scatter takes inputs at the root only");
  const Tensors input = root ? only(kScatter, inputs) : Tensors();
  if (root) expect_one_for_each_rank(kScatter, input.size(), size_);
  expect_like(kScatter, input, output);
  return move_bytes(
      kScatter, outputs, input,
      [root, opts](c10d::Backend& gloo, Works& works, Tensors& to, Tensors& from) {
        TensorLists lists;
        if (root) lists.push_back(from);
        works.push_back(gloo.scatter(to, lists, opts));
      },
      movement_of(size_ * bytes_in(outputs)), {}, /*host_waits=*/false,
      static_cast<int>(opts.rootRank));
}

/// tensors: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::send(Tensors& tensors, int to, int tag) {
  static_cast<void>(only(kSend, tensors));
  expect_transfer(kSend, to, tag, size_);
  Move call = [to, tag](c10d::Backend& gloo, Works& works, Tensors&, Tensors& from) {
    works.push_back(gloo.send(from, to, tag));
  };
  if (to == rank_) {
    call = [tag, mailbox = mailbox_](c10d::Backend&, Works&, Tensors&, Tensors& from) {
      mailbox->put(tag, from[0]);
    };
  }
  return move_bytes(kSend, {}, tensors, std::move(call), movement_of(bytes_in(tensors)),
                    {Channel::kSend, to, tag});
}

/// tensors: one.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::recv(Tensors& tensors, int from, int tag) {
  static_cast<void>(only(kReceive, tensors));
  expect_transfer(kReceive, from, tag, size_);
  Move call = [from, tag](c10d::Backend& gloo, Works& works, Tensors& to, Tensors&) {
    works.push_back(gloo.recv(to, from, tag));
  };
  if (from == rank_) {
    call = [tag, mailbox = mailbox_, timeout = options_->timeout](c10d::Backend&, Works&,
                                                                  Tensors& to, Tensors&) {
      mailbox->take(tag, to[0], timeout);
    };
  }
  return move_bytes(kReceive, tensors, {}, std::move(call), movement_of(bytes_in(tensors)),
                    {Channel::kReceive, from, tag});
}

/// tensors: one. The host waits in wait(), because the caller wants to know the source rank.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::recvAnysource(Tensors& tensors, int tag) {
  static_cast<void>(only(kReceiveAny, tensors));
  expect_transfer(kReceiveAny, rank_, tag, size_);
  const auto source = std::make_shared<std::atomic<int>>(-1);
  auto work = move_bytes(
      kReceiveAny, tensors, {},
      [tag, source](c10d::Backend& gloo, Works&, Tensors& to, Tensors&) {
        auto received = gloo.recvAnysource(to, tag);
        received->wait();
        *source = received->sourceRank();
      },
      movement_of(bytes_in(tensors)), {Channel::kReceive, /*peer=*/-1, tag}, /*host_waits=*/true);
  work->set_source(source);
  return work;
}

}  // namespace openreg::distributed
