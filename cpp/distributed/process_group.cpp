#include "distributed/process_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <list>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "backend/device.h"
#include "backend/exception.h"
#include "backend/faults.h"
#include "backend/stream.h"
#include "backend/submit.h"
#include "base/settings.h"
#include "distributed/communicators.h"
#include "distributed/fake_peers.h"
#include "distributed/injected_faults.h"
#include "memory/command_check.h"
#include "memory/race_detector.h"
#include "runtime/event.h"
#include "runtime/process.h"
#include "runtime/stream_pool.h"

namespace openreg::distributed {

namespace {

const Collective kBarrier{c10d::OpType::BARRIER, "occl::barrier"};
constexpr std::size_t kChannelsToKeep = 32;
// A call must not wait for room that only later calls of the program make: ranks may begin the two
// halves of transfers, or the collectives of several groups, in different orders. The tensors of
// transfers bound their number. What a program calls without ever waiting needs some bound.
constexpr std::uint64_t kQueuedCollectives = std::uint64_t{1} << 16;

/// Whether the rank's part of the collective can end only when the other one's has begun.
bool waits_for(c10d::OpType type, int rank, int other, int root) {
  switch (type) {
    case c10d::OpType::BROADCAST:
    case c10d::OpType::SCATTER:
      return other == root;
    case c10d::OpType::REDUCE:
    case c10d::OpType::GATHER:
      return rank == root;
    default:
      return true;
  }
}

GlooOperation::Call barrier_call(std::chrono::milliseconds timeout) {
  return [timeout](c10d::Backend& gloo, GlooOperation::Works& works) {
    c10d::BarrierOptions within;
    within.timeout = timeout;
    works.push_back(gloo.barrier(within));
  };
}

/// Makes a stream current on its device for the scope.
class StreamScope {
 public:
  explicit StreamScope(Stream& stream) : before_(backend::exchange_current_stream(stream)) {}
  ~StreamScope() { backend::exchange_current_stream(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Stream& before_;
};

}  // namespace

ProcessGroupOccl::ProcessGroupOccl(MakeGloo make_gloo, c10::intrusive_ptr<c10d::Store> store,
                                   int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      make_gloo_(std::move(make_gloo)),
      store_(std::move(store)),
      options_(std::move(options)),
      local_ranks_(store_ && has_peers() ? LocalRanks::join(*store_, rank, size) : nullptr) {}

ProcessGroupOccl::~ProcessGroupOccl() {
  forget_communicators(this);
  if (local_ranks_) local_ranks_->leave(rank_);
  for (const auto& [_, stream] : streams_) destroy_stream(*stream);
  GlooGroup::close(std::move(group_));
}

void ProcessGroupOccl::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  options_->timeout = timeout;
  if (group_) group_->gloo().setTimeout(timeout);
}

std::uint64_t ProcessGroupOccl::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return collectives_;
}

GlooGroup& ProcessGroupOccl::gloo_group() {
  if (!group_) {
    c10::intrusive_ptr<c10d::Backend> gloo;
    if (has_peers()) {
      gloo = make_gloo_(store_, rank_, size_, *options_);
    } else {
      gloo = c10::make_intrusive<FakePeers>(rank_, size_, options_->timeout);
    }
    gloo->setGroupUid(pg_uid_);  // for PyTorch's flight recorder, to which Gloo writes
    gloo->setGroupDesc(pg_desc_);
    auto group = std::make_unique<GlooGroup>(std::move(gloo), member());
    const std::lock_guard lock(abort_mutex_);
    if (aborted_) group->abort(aborted_);
    group_ = std::move(group);
  }
  return *group_;
}

// A program may use any number of tags; this keeps channels from far outnumbering the transfers
// under way.
void ProcessGroupOccl::close_idle_channels() {
  std::erase_if(streams_, [](const auto& entry) {
    const auto& [key, stream] = entry;
    if (key.second.kind == Channel::kCollectives || !stream->idle()) return false;
    destroy_stream(*stream);
    return true;
  });
}

// Separate streams for the group: on the pool's streams its collectives could wait for others, in
// an order that differs from another rank's.
Stream& ProcessGroupOccl::stream(c10::DeviceIndex device, Channel channel) {
  const std::pair key(device, channel);
  if (const auto found = streams_.find(key); found != streams_.end()) return *found->second;
  if (streams_.size() >= kChannelsToKeep) close_idle_channels();
  const auto limit = channel.kind == Channel::kCollectives ? kQueuedCollectives : kNoQueueLimit;
  auto& made = backend::translate_errors([&]() -> Stream& {
    begin_use();
    return StreamPool::of(device).create(Priority::kNormal, limit);
  });
  streams_.emplace(key, &made);
  if (size_ > 1) {
    const bool is_collective = channel.kind == Channel::kCollectives;
    note_connection(this, {.device = device, .ranks = size_, .collectives = is_collective},
                    channel.peer == rank_ ? -1 : channel.peer);
  }
  return made;
}

// Made with the first operation, because PyTorch names a group only after it has made it.
const std::shared_ptr<const Progress::Member>& ProcessGroupOccl::member() {
  if (!member_) {
    // Groups that the program has not named are all "undefined".
    const bool named = !pg_desc_.empty() && pg_desc_ != "undefined";
    member_ = std::make_shared<const Progress::Member>(
        Progress::Member{.store = store_,
                         .group = named ? pg_desc_ : pg_uid_,
                         .rank = rank_,
                         .size = size_,
                         .global_ranks = options_->global_ranks_in_group});
  }
  return member_;
}

int ProcessGroupOccl::global_rank() const {
  const auto& ranks = options_->global_ranks_in_group;
  return ranks.empty() ? rank_ : static_cast<int>(ranks.at(static_cast<std::size_t>(rank_)));
}

c10::intrusive_ptr<WorkOccl> ProcessGroupOccl::launch(Launch how, Prepare prepare) {
  backend::translate_errors([] {
    check_usable();
    faults::start();
  });
  std::unique_lock lock(mutex_);
  const auto& [what, device, outputs, movement, buffers, channel, host_waits, root] = how;
  auto& gloo = gloo_group();
  auto& stream = this->stream(device.index(), channel);
  if (what.type == c10d::OpType::ALLTOALL || what.type == c10d::OpType::ALLTOALL_BASE)
    note_connections_with_all(this, {.device = device.index(), .ranks = size_}, rank_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  WorkOccl::Part part{.device = device};
  backend::translate_errors([&] { wait_stream(stream, backend::current_stream(device.index())); });
  const StreamScope scope(stream);
  const bool is_collective = channel.kind == Channel::kCollectives;
  Staging staging(stream, movement);
  auto call = prepare(staging);
  auto waits = what.waits;
  if (movement == Movement::kNone && is_collective) {
    call = barrier_call(c10d::kUnsetTimeout);
    waits = GlooOperation::Waits::kNothing;
  } else if (!has_peers() && (is_collective || channel.peer != rank_)) {
    waits = GlooOperation::Waits::kNothing;  // the call completes all works
  }
  const auto fault = backend::translate_errors(
      [&] { return backend::fault_of_collective(stream, what.kernel.name(), global_rank()); });
  if (!fault.error.empty() || fault.hangs) {
    call = injected_call(fault, gloo);
    waits = GlooOperation::Waits::kNothing;
  }
  if (auto* const detector = memory::RaceDetector::get()) {
    // The memory is kept until the operation has ended or the program waits, so it is not reused
    // earlier.
    for (const auto& storage : staging.memory()) detector->used_by_stream(storage.data(), stream);
  }
  // Collectives have the same numbers on all ranks; sends and receives do not.
  const Progress::Step step{what.kernel.name(), is_collective ? ++collectives_ : ++transfers_};
  if (!is_collective) ++of_channel_[channel];
  note_begin(stream, channel);
  part.operation =
      make_operation(step, stream, staging, std::move(call), waits, part.stash, buffers);
  backend::translate_errors([&] {
    memory::Launch launch{.stream = stream, .name = what.kernel.name(), .memory = staging.uses()};
    memory::checks::enqueue_checked(launch, [&] { enqueue(stream, what.kernel, part.operation); });
    staging.note_values(has_peers() ? Staging::Received::kValues : Staging::Received::kZeros);
    note_wait(stream, what, channel, root);
    // Not a transfer: its peer may begin the other half only after this rank's next call.
    if (!settings().launch_blocking || !is_collective) return;
    // Without the lock: a collective may wait for one that another thread has yet to call.
    lock.unlock();
    stream.synchronize();
    lock.lock();
  });
  staging.finish();
  backend::translate_errors([&] {
    part.end = std::make_shared<Event>();
    part.end->record(stream);
  });
  if (coalescing_) {
    coalesced_.push_back(part);
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
  }
  return c10::make_intrusive<WorkOccl>(rank_,
                                       WorkOccl::What{.type = what.type,
                                                      .step = step,
                                                      .member = member(),
                                                      .devices = {device},
                                                      .host_waits = host_waits},
                                       std::vector<WorkOccl::Part>{std::move(part)},
                                       std::move(how.outputs));
}

std::shared_ptr<GlooOperation> ProcessGroupOccl::make_operation(
    const Progress::Step& step, Stream& stream, Staging& staging, GlooOperation::Call call,
    GlooOperation::Waits waits, std::shared_ptr<Stash>& stash, const Tensors& buffers) {
  const bool gloo_uses_memory = has_peers() && staging.movement() == Movement::kInPlace;
  auto memory = staging.take_memory();
  for (const auto& buffer : buffers) memory.push_back(buffer.storage());
  stash = std::make_shared<Stash>(std::move(memory), gloo_uses_memory ? &stream : nullptr);
  return std::make_shared<GlooOperation>(
      step, member(), gloo_group(),
      [call = std::move(call), arrive = staging.arrival()](c10d::Backend& gloo,
                                                           GlooOperation::Works& works) {
        if (arrive) arrive();
        call(gloo, works);
      },
      stash, waits, staging.departure());
}

// For the race detector, if other ranks are threads of this process.
void ProcessGroupOccl::note_begin(const Stream& stream, Channel channel) {
  if (!local_ranks_ || channel.kind == Channel::kReceive) return;
  if (channel.kind == Channel::kSend) {
    local_ranks_->begin({rank_, channel.peer, channel.tag}, of_channel_[channel], stream);
  } else {
    local_ranks_->begin({rank_}, collectives_, stream);
  }
}

// A receive from any rank may come after the next send of each.
void ProcessGroupOccl::note_wait(const Stream& stream, const Collective& what, Channel channel,
                                 int root) {
  if (!local_ranks_ || channel.kind == Channel::kSend) return;
  const auto received_from = [&](int peer) {
    const auto found = of_channel_.find({Channel::kReceive, peer, channel.tag});
    return found == of_channel_.end() ? 0 : found->second;
  };
  for (const int other : local_ranks_->others(rank_)) {
    if (channel.kind == Channel::kReceive) {
      if (channel.peer != -1 && channel.peer != other) continue;
      local_ranks_->wait({other, rank_, channel.tag}, received_from(other) + received_from(-1),
                         stream);
    } else if (waits_for(what.type, rank_, other, root)) {
      local_ranks_->wait({other}, collectives_, stream);
    }
  }
}

c10::Device ProcessGroupOccl::device_for(const c10d::BarrierOptions& opts) const {
  if (opts.device && opts.device->type() == backend::kDeviceType && opts.device->has_index())
    return {backend::kDeviceType, backend::resolve_device(opts.device->index())};
  if (bound_device_id_) return *bound_device_id_;
  const auto index = opts.device_ids.empty() ? backend::current_device()
                                             : static_cast<c10::DeviceIndex>(opts.device_ids[0]);
  return {backend::kDeviceType, backend::resolve_device(index)};
}

/// The host waits in wait(), also for the work before the barrier. NCCL reduces an element.
c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::barrier(const c10d::BarrierOptions& opts) {
  const auto device = device_for(opts);
  return launch({.what = kBarrier,
                 .device = device,
                 .buffers = {at::empty({1}, at::TensorOptions(device).dtype(at::kFloat))},
                 .host_waits = true},
                [&](Staging&) { return barrier_call(opts.timeout); });
}

void ProcessGroupOccl::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = true;
}

c10::intrusive_ptr<c10d::Work> ProcessGroupOccl::endCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = false;
  std::set<c10::DeviceIndex> indices;
  for (const auto& part : coalesced_) indices.insert(part.device.index());
  if (indices.empty()) indices.insert(backend::current_device());
  // The future's callbacks run after all parts, on the collectives' stream of each device.
  std::vector<c10::Device> devices;
  std::list<StreamScope> scopes;
  for (const auto index : indices) {
    auto& stream = this->stream(index, {});
    scopes.emplace_back(stream);
    devices.emplace_back(backend::kDeviceType, index);
    backend::translate_errors([&] {
      for (const auto& part : coalesced_) part.end->wait(stream);
    });
  }
  return c10::make_intrusive<WorkOccl>(rank_,
                                       WorkOccl::What{.type = c10d::OpType::COALESCED,
                                                      .step = {"occl::coalesced", collectives_},
                                                      .member = member(),
                                                      .devices = std::move(devices)},
                                       std::exchange(coalesced_, {}),
                                       std::exchange(coalesced_outputs_, {}));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOccl::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& opts) {
  const auto found = std::ranges::find(ranks, rank_);
  if (found == ranks.end()) return nullptr;
  // PyTorch gives the new group's backends one store; Gloo's, for the CPU, uses the same keys.
  auto own = c10::make_intrusive<c10d::PrefixStore>("occl", store);
  return c10::make_intrusive<ProcessGroupOccl>(make_gloo_, std::move(own),
                                               static_cast<int>(found - ranks.begin()),
                                               static_cast<int>(ranks.size()), opts);
}

void ProcessGroupOccl::abort() {
  // Without mutex_, which a call that waits for a hung collective holds.
  const std::lock_guard lock(abort_mutex_);
  aborted_ = std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, "the group was aborted"));
  mailbox_->close(aborted_);
  if (group_) group_->abort(aborted_);
}

void ProcessGroupOccl::shutdown() {
  if (is_shut_down() || in_bad_fork()) return;
  forget_communicators(this);
  const auto streams = [&] {
    const std::lock_guard lock(mutex_);
    return streams_;
  }();
  // Without the lock: abort() ends the wait.
  backend::translate_errors([&] {
    for (const auto& [_, stream] : streams) stream->drain();
  });
  const std::lock_guard lock(mutex_);
  auto group = [&] {
    const std::lock_guard abort_lock(abort_mutex_);
    return std::move(group_);
  }();
  GlooGroup::close(std::move(group));
}

}  // namespace openreg::distributed
