#include "runtime/graph_exec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "address_space/address_space.h"
#include "address_space/fault_message.h"
#include "base/settings.h"
#include "runtime/device_health.h"
#include "runtime/fence.h"
#include "runtime/process.h"
#include "runtime/remote_runner.h"
#include "runtime/run_slice.h"
#include "runtime/stream_impl.h"

namespace openreg {

namespace {

std::atomic<std::uint64_t> g_numbers{1};

FenceRef record_internal(StreamImpl& stream) {
  FenceRef fence(new Fence(&stream));
  stream.enqueue_internal_record(fence);
  return fence;
}

void wait(StreamImpl& stream, const FenceRef& fence) {
  if (fence->source() != &stream) stream.enqueue_wait(fence, Backpressure::kIgnore);
}

}  // namespace

void GraphRun::write_parameters() noexcept {
  for (const auto& [memory, value] : parameters_)
    std::memcpy(AddressSpace::get().aperture(memory), value.data(), sizeof value);
  parameters_.clear();
}

const Graph::Node& GraphRun::node() const noexcept { return exec_->graph_.nodes[nodes_[next_]]; }

void GraphRun::run_node() {
  const auto number = nodes_[next_];
  const auto& node = exec_->graph_.nodes[number];
  if (has_fault(number)) return faults_->at(number).run(*node.kernel, node.arguments);
  auto& prepared = exec_->prepared_[number];
  if (!prepared) prepared = node.kernel->prepare(node.arguments);
  prepared->run();
}

std::shared_ptr<GraphExec> GraphExec::make(Graph graph, std::shared_ptr<const void> keeps_alive) {
  return std::shared_ptr<GraphExec>(new GraphExec(std::move(graph), std::move(keeps_alive)));
}

GraphExec::GraphExec(Graph graph, std::shared_ptr<const void> keeps_alive)
    : graph_(std::move(graph)),
      number_(g_numbers.fetch_add(1, std::memory_order_relaxed)),
      keeps_alive_(std::move(keeps_alive)),
      prepared_(graph_.nodes.size()) {
  cut_into_segments();
  lanes_.resize(graph_.lanes.size(), nullptr);
  for (const auto& segment : segments_) {
    auto*& lane = lanes_[segment.lane];
    const auto& [device, priority] = graph_.lanes[segment.lane];
    if (segment.lane != 0 && !lane) lane = &StreamImpl::of(create_stream(device, priority));
  }
}

GraphExec::~GraphExec() {
  for (int device = 0; device < settings().devices; ++device) {
    if (RemoteRunner* const remote = RemoteRunner::of(device)) remote->forget_graph(number_);
  }
  for (StreamImpl* const lane : lanes_) {
    if (lane) destroy_stream(*lane);
  }
}

const Stream* GraphExec::stream_of_last_run() {
  const LockGuard lock(mutex_);
  return last_;
}

// A segment ends at a node that another lane waits for, and before one that waits for another lane.
void GraphExec::cut_into_segments() {
  const auto& nodes = graph_.nodes;
  const auto lanes = graph_.lanes.size();
  // The newest node of each other lane that a lane has waited for: the nodes before it on that lane
  // need no separate wait.
  std::vector<std::vector<std::int64_t>> waited(lanes, std::vector<std::int64_t>(lanes, -1));
  const auto needed = [&](std::uint32_t lane, const std::vector<std::uint32_t>& after) {
    std::map<std::uint32_t, std::uint32_t> newest;  // by lane
    for (const auto before : after) {
      const auto of = nodes[before].lane;
      if (of != lane && waited[lane][of] < before) newest[of] = before;  // they are in order
    }
    for (const auto& [of, before] : newest) waited[lane][of] = before;
    return newest;
  };
  std::vector<std::map<std::uint32_t, std::uint32_t>> waits(nodes.size() + 1);
  std::vector<bool> is_awaited(nodes.size(), false);
  for (std::size_t i = 0; i <= nodes.size(); ++i) {
    waits[i] = i < nodes.size() ? needed(nodes[i].lane, nodes[i].after) : needed(0, graph_.ends);
    for (const auto& [lane, before] : waits[i]) is_awaited[before] = true;
  }

  constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> open(lanes, kNone);  // the segment that takes the lane's next node
  std::vector<std::uint32_t> segment_of(nodes.size());
  const auto segments_of = [&](const std::map<std::uint32_t, std::uint32_t>& newest) {
    std::vector<std::uint32_t> segments;
    segments.reserve(newest.size());
    for (const auto& [lane, before] : newest) segments.push_back(segment_of[before]);
    return segments;
  };
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const auto lane = nodes[i].lane;
    if (open[lane] == kNone || !waits[i].empty()) {
      open[lane] = static_cast<std::uint32_t>(segments_.size());
      segments_.push_back({.lane = lane, .nodes = {}, .after = segments_of(waits[i])});
    }
    segment_of[i] = open[lane];
    auto& segment = segments_[open[lane]];
    segment.nodes.push_back(i);
    segment.cost.add(nodes[i].cost);
    if (!is_awaited[i]) continue;
    segment.awaited = true;
    open[lane] = kNone;
  }
  ends_ = segments_of(waits[nodes.size()]);
}

std::unique_ptr<GraphRun> GraphExec::run_of(const Segment* segment,
                                            std::vector<ReplayParameter> parameters,
                                            SharedFaults faults) {
  return std::make_unique<GraphRun>(shared_from_this(),
                                    segment ? GraphRun::Nodes(segment->nodes) : GraphRun::Nodes(),
                                    std::move(parameters), std::move(faults));
}

void GraphExec::enqueue(Stream& stream, std::vector<ReplayParameter> parameters,
                        NodeFaults faults) {
  check_usable();
  StreamImpl& impl = StreamImpl::of(stream);
  check_runs_kernels(impl.device_index);
  const SharedFaults shared =
      faults.empty() ? nullptr : std::make_shared<const NodeFaults>(std::move(faults));
  keep_fault_message_in_front();  // memory that the graph uses may be gone
  impl.make_room_if_full();       // the last thing that may wait or fail
  const LockGuard lock(mutex_);
  if (last_ && last_ != &impl) {
    const FenceRef end_of_last = record_internal(*last_);
    wait(impl, end_of_last);
  }
  last_ = &impl;
  const bool is_chain = segments_.size() == 1 && segments_[0].lane == 0;
  if (is_chain) {
    impl.enqueue_graph(run_of(&segments_[0], std::move(parameters), shared), segments_[0].cost);
  } else if (!segments_.empty()) {
    enqueue_lanes(impl, std::move(parameters), shared);
  }
}

void GraphExec::enqueue_lanes(StreamImpl& stream, std::vector<ReplayParameter> parameters,
                              const SharedFaults& faults) {
  stream.enqueue_graph(run_of(nullptr, std::move(parameters), nullptr), {});
  const FenceRef begin = record_internal(stream);
  for (StreamImpl* const lane : lanes_) {
    if (lane) wait(*lane, begin);
  }
  std::vector<FenceRef> ends(segments_.size());
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto& segment = segments_[i];
    StreamImpl& lane = segment.lane == 0 ? stream : *lanes_[segment.lane];
    for (const auto before : segment.after) wait(lane, ends[before]);
    lane.enqueue_graph(run_of(&segment, {}, faults), segment.cost);
    if (segment.awaited) ends[i] = record_internal(lane);
  }
  for (const auto segment : ends_) wait(stream, ends[segment]);
  // A failure of a lane now belongs to the run's stream, and only to that.
  for (StreamImpl* const lane : lanes_) {
    if (!lane) continue;
    lane->enqueue_graph(std::make_unique<GraphRun>(shared_from_this(), GraphRun::Nodes(),
                                                   std::vector<ReplayParameter>(), nullptr, true),
                        {});
  }
}

}  // namespace openreg
