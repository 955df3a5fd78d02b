#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "runtime/command.h"
#include "runtime/faulty_command.h"
#include "runtime/graph.h"

namespace openreg {

class GraphExec;
struct StreamImpl;

/// 16 bytes of device memory that a run writes first: what differs between runs.
struct ReplayParameter {
  void* memory;
  std::array<std::uint64_t, 2> value;
};

/// A part of one run of a graph, which one stream runs from beginning to end. It is one record in
/// the queue; the owner of the stream runs it node by node, and may hand the stream over in
/// between.
class GraphRun {
 public:
  using Nodes = std::span<const std::uint32_t>;

  /// Writes the parameters and then runs the nodes. With `clears_failure` the stream drops its
  /// failure, if it has one, because other streams have it by then.
  GraphRun(std::shared_ptr<GraphExec> exec, Nodes nodes, std::vector<ReplayParameter> parameters,
           std::shared_ptr<const NodeFaults> faults = nullptr, bool clears_failure = false)
      : exec_(std::move(exec)),
        nodes_(nodes),
        parameters_(std::move(parameters)),
        faults_(std::move(faults)),
        clears_failure_(clears_failure) {}

  bool clears_failure() const noexcept { return clears_failure_; }
  bool has_parameters() const noexcept { return !parameters_.empty(); }
  /// Writes the parameters. Called before the first node.
  void write_parameters() noexcept;
  bool has_node() const noexcept { return next_ != nodes_.size(); }
  const Graph::Node& node() const noexcept;
  /// The next node's number in the graph.
  std::uint32_t node_number() const noexcept { return nodes_[next_]; }
  void run_node();
  void advance(std::size_t nodes = 1) noexcept { next_ += nodes; }
  const GraphExec& exec() const noexcept { return *exec_; }
  /// The numbers in the graph of the nodes that are left.
  Nodes rest() const noexcept { return nodes_.subspan(next_); }
  /// Whether a fault is injected into this node of the graph.
  bool has_fault(std::uint32_t node) const noexcept { return faults_ && faults_->contains(node); }

 private:
  const std::shared_ptr<GraphExec> exec_;
  const Nodes nodes_;
  std::vector<ReplayParameter> parameters_;
  const std::shared_ptr<const NodeFaults> faults_;  // null: none
  const bool clears_failure_;
  std::size_t next_ = 0;
};

/// A graph that can be launched any number of times; its runs execute one after another. The first
/// run prepares the nodes. Each lane except the first has its own stream, and is cut into
/// *segments* where lanes meet: a run is one record for each segment, and events between them.
/// Thread safe.
class GraphExec : public std::enable_shared_from_this<GraphExec> {
 public:
  /// `keeps_alive` lives as long as a run may need it.
  static std::shared_ptr<GraphExec> make(Graph graph, std::shared_ptr<const void> keeps_alive = {});
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  const Graph& graph() const noexcept { return graph_; }
  /// Unique in the process, for RemoteRunner::forget_graph().
  std::uint64_t number() const noexcept { return number_; }
  /// The stream of the newest run, after whose work the next run comes; null if there is none.
  const Stream* stream_of_last_run() OPENREG_EXCLUDES(mutex_);

  /// Queues a run. It runs after the work that `stream` has now; work that is enqueued on `stream`
  /// later runs after it, and so does the next run, whatever its stream. A failed node ends its own
  /// lane and each lane that waits for it, and fails `stream` as a failed command does. Nodes with
  /// `faults` have them in this run. Throws as
  /// Stream::enqueue() does; then nothing is queued, except after std::bad_alloc.
  void enqueue(Stream& stream, std::vector<ReplayParameter> parameters = {},
               NodeFaults faults = {});

 private:
  friend class GraphRun;

  struct Segment {
    std::uint32_t lane;
    std::vector<std::uint32_t> nodes;
    std::vector<std::uint32_t> after;  // segments of other lanes
    bool awaited = false;              // by a segment of another lane, or by the end
    Cost cost{};                       // of its nodes
  };

  explicit GraphExec(Graph graph, std::shared_ptr<const void> keeps_alive);
  void cut_into_segments();
  using SharedFaults = std::shared_ptr<const NodeFaults>;
  std::unique_ptr<GraphRun> run_of(const Segment* segment, std::vector<ReplayParameter> parameters,
                                   SharedFaults faults);
  void enqueue_lanes(StreamImpl& stream, std::vector<ReplayParameter> parameters,
                     const SharedFaults& faults) OPENREG_REQUIRES(mutex_);

  const Graph graph_;
  const std::uint64_t number_;
  const std::shared_ptr<const void> keeps_alive_;
  std::vector<Segment> segments_;    // each after its predecessors
  std::vector<std::uint32_t> ends_;  // segments of other lanes that the end comes after
  std::vector<StreamImpl*> lanes_;   // the first is null: it is the stream of the run
  // One for each node, used by the runner of the node's segment.
  std::vector<std::unique_ptr<PreparedCommand>> prepared_;
  Mutex mutex_;                                            // never held while waiting
  StreamImpl* last_ OPENREG_GUARDED_BY(mutex_) = nullptr;  // the stream of the newest run
};

}  // namespace openreg
