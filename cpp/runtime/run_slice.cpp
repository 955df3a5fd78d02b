#include "runtime/run_slice.h"

#include <cxxabi.h>
#include <unistd.h>

#include <utility>

#include "runtime/counters.h"
#include "runtime/error.h"
#include "runtime/fence.h"
#include "runtime/graph_exec.h"
#include "runtime/scheduler.h"
#include "runtime/test_point.h"
#include "runtime/trace.h"

namespace openreg {

namespace {

constinit thread_local bool t_running = false;

// Around a command that needs another number of threads than its runner has.
class ComputeScope {
 public:
  ComputeScope(const Callbacks& callbacks, Cost cost, bool engine)
      : callbacks_(callbacks.begin_compute && (cost.is_long() || cost.reproducible) ? &callbacks
                                                                                    : nullptr) {
    if (callbacks_) team_ = callbacks_->begin_compute(cost, engine);
  }
  ~ComputeScope() {
    if (callbacks_ && callbacks_->end_compute) callbacks_->end_compute(team_);
  }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  const Callbacks* const callbacks_;
  Callbacks::Team team_{};
};

// A command's slice of the trace.
class TracedCommand {
 public:
  TracedCommand(const StreamImpl& stream, std::uint32_t id, const Kernel& kernel,
                std::span<const std::byte> arguments, LaunchSite site, bool engine) noexcept
      : stream_(stream),
        id_(id),
        kernel_(kernel),
        arguments_(arguments),
        site_(site),
        engine_(engine) {
    if (tracing::on()) begin_ = tracing::now();
  }
  ~TracedCommand() {
    if (begin_ != 0) keep();
  }
  TracedCommand(const TracedCommand&) = delete;
  TracedCommand& operator=(const TracedCommand&) = delete;

 private:
  void keep() const noexcept {
    tracing::keep({.what = TraceSlice::What::kCommand,
                   .by_engine = engine_,
                   .id = id_,
                   .device = stream_.device_index,
                   .stream = stream_.number,
                   .begin = begin_,
                   .end = tracing::now(),
                   .site = site_,
                   .name = kernel_.name(),
                   .summary = kernel_.summary(arguments_)});
  }

  const StreamImpl& stream_;
  const std::uint32_t id_;
  const Kernel& kernel_;
  const std::span<const std::byte> arguments_;
  const LaunchSite site_;
  const bool engine_;
  std::int64_t begin_ = 0;
};

void trace_event_record(const StreamImpl& stream, const Record& record,
                        std::int64_t begin) noexcept {
  tracing::keep({.what = TraceSlice::What::kEventRecord,
                 .id = record.traced_as,
                 .device = stream.device_index,
                 .stream = stream.number,
                 .begin = begin,
                 .end = tracing::now()});
}

// A wait for something outside the device is shown as that operation's time on the stream.
void trace_event_wait(StreamImpl& stream, const Record& record, const Fence& fence) noexcept {
  const bool outside = fence.source() == nullptr;
  tracing::keep({.what = outside ? TraceSlice::What::kCommand : TraceSlice::What::kEventWait,
                 .id = record.traced_as,
                 .device = stream.device_index,
                 .other_device = outside ? -1 : fence.source()->device_index,
                 .other_stream = outside ? 0 : fence.source()->number,
                 .stream = stream.number,
                 .begin = std::exchange(stream.wait_began, 0),
                 .end = tracing::now(),
                 .site = record.site,
                 .name = fence.name()});
}

void set_running(bool running) noexcept {
  if (running == t_running) return;
  t_running = running;
  running ? Scheduler::get().begin_running() : Scheduler::get().end_running();
}

}  // namespace

RunningScope::RunningScope(bool running) noexcept : before_(t_running) { set_running(running); }
RunningScope::~RunningScope() { set_running(before_); }

void block_forever() noexcept {
  set_running(false);
  while (true) pause();
}

constinit thread_local RunSlice* RunSlice::innermost_ = nullptr;

RunSlice::RunSlice(StreamImpl& stream, Runner runner, Callbacks::SinceLastWait before)
    : stream_(stream),
      runner_(runner),
      before_(before),
      callbacks_(current_callbacks()),
      outer_(innermost_) {
  innermost_ = this;
}

RunSlice::~RunSlice() {
  innermost_ = outer_;
  if (entered_ && callbacks_.leave_commands) callbacks_.leave_commands(clean_state_);
  flush_counters();
}

bool RunSlice::is_for(EngineKind kind) noexcept {
  return stream_.next_engine().value_or(kind) == kind;
}

bool RunSlice::step() {
  const Record& record = stream_.queue.front();
  FenceRef recorded;
  switch (record.kind) {
    case Record::kRun:
      recorded = FenceRef::attach(record.fence);
      run(record, record.fence);
      break;
    case Record::kRecord: {
      const auto begin = record.traced_as != 0 ? tracing::now() : 0;
      recorded = FenceRef::attach(static_cast<Fence*>(record.target));
      recorded->complete(stream_.failure.get());
      if (begin != 0) trace_event_record(stream_, record, begin);
      break;
    }
    case Record::kWait: {
      auto* const fence = static_cast<Fence*>(record.target);
      if (record.traced_as != 0 && stream_.wait_began == 0) stream_.wait_began = tracing::now();
      if (!fence->done() && fence->park(stream_)) return false;
      if (stream_.wait_began != 0) trace_event_wait(stream_, record, *fence);
      const auto waited = FenceRef::attach(fence);
      if (waited->failed()) stream_.failure.put(waited->failure_for(stream_, record.site));
      break;
    }
    case Record::kGraph:
      if (!run_part(record)) return true;
      break;
  }
  stream_.queue.pop(record);
  if (recorded) {
    reach(TestPoint::kPopped);
    recorded->fire();  // after the pop, so that woken threads see the command completed
    reach(TestPoint::kFired);
  }
  return true;
}

// Not called for records and waits.
void RunSlice::enter() {
  if (std::exchange(entered_, true)) return;
  if (!callbacks_.enter_commands) return;
  clean_state_ = callbacks_.enter_commands(
      {.engine = runner_ == Runner::kEngine, .left = stream_.queue.cost_left(), .before = before_});
}

// `fence`, if given, belongs to a caller that waits for the command and gets its failure.
void RunSlice::run(const Record& record, Fence* fence) {
  const auto& kernel = *static_cast<const Kernel*>(record.target);
  if (stream_.failure.full()) {
    // If this is null although there is a fence, another call has collected the failure since: the
    // stream is usable, and the caller's command runs.
    FailurePtr earlier = fence ? stream_.failure.get() : nullptr;
    if (!fence || earlier) {
      if (kernel.traits().skip) {
        enter();
        kernel.traits().skip(record.arguments());
      }
      if (fence) fence->complete(std::move(earlier));
      return;
    }
  }
  ++commands_;
  enter();
  const TracedCommand traced(stream_, record.traced_as, kernel, record.arguments(), record.site,
                             runner_ == Runner::kEngine);
  try {
    compute(kernel, record.cost, [&] { kernel.run(record.arguments()); });
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended from outside (Python does so at exit); this is no error
  } catch (...) {
    if (fence && fence->complete(std::current_exception())) return;
    stream_.poison(kernel, record.site, std::current_exception());
  }
}

template <class F>
void RunSlice::compute(const Kernel& kernel, Cost cost, F&& f) {
  const RunningScope mark(!kernel.traits().may_block);
  const ComputeScope team(callbacks_, cost, runner_ == Runner::kEngine);
  f();
}

// Runs one node of a graph. False: there are more nodes, and the record stays in the queue.
bool RunSlice::run_part(const Record& record) {
  auto& run = *static_cast<GraphRun*>(record.target);
  if (run.hands_over()) static_cast<void>(stream_.failure.take());
  if (!stream_.failure.full()) {
    run.write_cells();
    if (run.has_node()) {
      ++commands_;
      enter();
      const auto& node = run.node();
      const TracedCommand traced(stream_, record.traced_as, *node.kernel, node.arguments, node.site,
                                 runner_ == Runner::kEngine);
      try {
        compute(*node.kernel, node.cost, [&] { run.run_node(); });
      } catch (const abi::__forced_unwind&) {
        throw;
      } catch (...) {
        stream_.poison(*node.kernel, node.site, std::current_exception());
      }
    }
    if (run.has_node() && !stream_.failure.full()) return false;
  }
  delete &run;
  return true;
}

void RunSlice::flush_counters() noexcept {
  auto& counter =
      runner_ == Runner::kEngine ? counters::commands_by_engines : counters::commands_by_hosts;
  counter.add(std::exchange(commands_, 0));
}

bool in_command() noexcept { return RunSlice::innermost_ != nullptr; }

bool runs_here(const StreamImpl& stream) noexcept {
  for (const RunSlice* slice = RunSlice::innermost_; slice; slice = slice->outer_) {
    if (&slice->stream_ == &stream) return true;
  }
  return false;
}

bool runs_device_here(int device) noexcept {
  for (const RunSlice* slice = RunSlice::innermost_; slice; slice = slice->outer_) {
    if (slice->stream_.device_index == device) return true;
  }
  return false;
}

void throw_self_wait() { throw Error("openreg: a command must not wait for its own stream"); }

}  // namespace openreg
