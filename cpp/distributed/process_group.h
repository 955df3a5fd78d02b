#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "distributed/gloo_operation.h"
#include "distributed/local_ranks.h"
#include "distributed/mailbox.h"
#include "distributed/staging.h"
#include "distributed/work.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// A kind of collective: PyTorch's name for it, and the kernel that begins it.
struct Collective {
  Collective(c10d::OpType op_type, const char* kernel_name,
             GlooOperation::Waits how = GlooOperation::Waits::kNothing)
      : type(op_type), kernel(kernel_name), waits(how) {}

  const c10d::OpType type;
  const OperationKernel kernel;
  const GlooOperation::Waits waits;
};

/// A separate sequence of operations: one for collectives, and one for each direction, peer and
/// tag, because transfers that Gloo matches in any order must not wait for each other.
struct Channel {
  enum Kind { kCollectives, kSend, kReceive } kind = kCollectives;
  int peer = -1;
  int tag = 0;
  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr): Clang's 0
};

/// The backend "occl" of torch.distributed: collectives on the device's tensors, which PyTorch's
/// own Gloo performs on their memory. As with NCCL, a collective is queued: it begins, on a
/// separate stream of the group, when the work before it on the current stream has completed; the
/// caller does not wait. Without computing, see Note [Collectives without computing].
class ProcessGroupOccl final : public c10d::Backend {
 public:
  struct GroupOptions final : Options {
    using Options::Options;
  };
  /// Makes a Gloo backend. May be called on any thread.
  using MakeGloo = std::function<c10::intrusive_ptr<c10d::Backend>(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const Options& options)>;

  /// Gloo is made for the first collective: until then the group consists only of this object.
  /// Without `make_gloo` the other ranks do not exist (FakePeers).
  ProcessGroupOccl(MakeGloo make_gloo, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   c10::intrusive_ptr<Options> options);
  /// Does not wait.
  ~ProcessGroupOccl() override;

  const std::string getBackendName() const override { return "occl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& to,
                        std::vector<std::int64_t>& from,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

  /// Calls between the two are queued as usual, and the second returns one work for all of them.
  /// Point-to-point calls may then be in any order.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;
  /// Operations under way, and those that begin later, fail. Their memory is not reused until Gloo
  /// has noticed. Does not wait for other threads' calls.
  void abort() override;
  /// Waits for operations under way.
  void shutdown() override;

 private:
  /// Called with the group's stream current; returns the call of Gloo.
  using Prepare = c10::function_ref<GlooOperation::Call(Staging&)>;

  /// Called on the thread that begins the operation, with the bytes of the tensors that Gloo writes
  /// and of those that it reads.
  using Move = std::function<void(c10d::Backend& gloo, GlooOperation::Works& works, Tensors& to,
                                  Tensors& from)>;

  struct Launch {
    const Collective& what;
    c10::Device device;
    Tensors outputs{};
    Movement movement = Movement::kInPlace;
    Tensors buffers{};  ///< memory that NCCL would use; not touched
    Channel channel{};
    bool host_waits = false;
    int root = -1;  ///< of collectives with one
  };
  c10::intrusive_ptr<WorkOccl> launch(Launch how, Prepare prepare);
  /// Sets `stash`: what the work must keep.
  std::shared_ptr<GlooOperation> make_operation(const Progress::Step& step, Stream& stream,
                                                Staging& staging, GlooOperation::Call call,
                                                GlooOperation::Waits waits,
                                                std::shared_ptr<Stash>& stash,
                                                const Tensors& buffers);
  /// The result is `to`, or `from` if `to` is empty.
  c10::intrusive_ptr<WorkOccl> move_bytes(const Collective& what, const Tensors& to,
                                          const Tensors& from, Move call, Movement movement,
                                          Channel channel = {}, bool host_waits = false,
                                          int root = -1);
  WorkPtr exchange(const Collective& what, const Tensors& outputs, const Tensors& inputs,
                   const Tensors& to, const Tensors& from, const c10d::AllToAllOptions& opts);
  c10::intrusive_ptr<WorkOccl> reduce_tensors(const Collective& what, Tensors& tensors,
                                              const c10d::AllreduceOptions& opts);
  GlooGroup& gloo_group();
  bool has_peers() const { return make_gloo_ != nullptr; }
  Stream& stream(c10::DeviceIndex device, Channel channel);
  int global_rank() const;
  void note_begin(const Stream& stream, Channel channel);
  void note_wait(const Stream& stream, const Collective& what, Channel channel, int root);
  void close_idle_channels();
  const std::shared_ptr<const Progress::Member>& member();
  c10::Device device_for(const c10d::BarrierOptions& opts) const;

  const MakeGloo make_gloo_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;

  std::recursive_mutex mutex_;  // a launch allocates memory, which may run the program's callbacks
  std::shared_ptr<const Progress::Member> member_;
  std::mutex abort_mutex_;            // after mutex_
  std::unique_ptr<GlooGroup> group_;  // written under both
  std::exception_ptr aborted_;        // under abort_mutex_
  std::map<std::pair<c10::DeviceIndex, Channel>, Stream*> streams_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::uint64_t collectives_ = 0;
  std::uint64_t transfers_ = 0;                    // sends and receives
  std::map<Channel, std::uint64_t> of_channel_;    // transfers of each
  const std::shared_ptr<LocalRanks> local_ranks_;  // null if they are unknown
  bool coalescing_ = false;
  std::vector<WorkOccl::Part> coalesced_;
  Tensors coalesced_outputs_;
};

}  // namespace openreg::distributed
