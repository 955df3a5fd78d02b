#include "runtime/run_slice.h"

#include <cxxabi.h>
#include <unistd.h>

#include <utility>

#include "base/counters.h"
#include "base/error.h"
#include "base/test_point.h"
#include "runtime/compute_scope.h"
#include "runtime/fence.h"
#include "runtime/graph_exec.h"
#include "runtime/remote_runner.h"
#include "runtime/scheduler.h"
#include "runtime/trace.h"
#include "runtime/traced_command.h"

namespace openreg {

namespace {

constinit thread_local bool t_running = false;

}  // namespace

namespace {

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
  if (!begin(record)) {
    pop(record);
    return true;
  }
  if (RemoteRunner* const remote = RemoteRunner::of(stream_.device_index)) [[unlikely]] {
    const auto result = remote->run_next(*this);
    if (result != RemoteRunner::Result::kNothing) return result == RemoteRunner::Result::kHasRun;
  }
  switch (record.kind) {
    case Record::kRun: {
      const auto& kernel = *static_cast<const Kernel*>(record.target);
      run(record, {&kernel, record.arguments(), record.site}, record.cost,
          [&] { kernel.run(record.arguments()); });
      break;
    }
    case Record::kRecord: {
      const auto begin = record.traced_as != 0 ? tracing::now() : 0;
      static_cast<Fence*>(record.target)->complete(stream_.failure.get());
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
    case Record::kGraph: {
      auto* const run = static_cast<GraphRun*>(record.target);
      if (run_node(record) && run->has_node()) return true;
      delete run;
      break;
    }
  }
  pop(record);
  return true;
}

void RunSlice::pop(const Record& record) {
  FenceRef completed;
  if (record.kind == Record::kRun) completed = FenceRef::attach(record.fence);
  if (record.kind == Record::kRecord)
    completed = FenceRef::attach(static_cast<Fence*>(record.target));
  stream_.queue.pop(record);
  if (!completed) return;
  reach(TestPoint::kPopped);
  completed->fire();  // after the pop, so that woken threads see the command completed
  reach(TestPoint::kFired);
}

void RunSlice::enter() {
  if (std::exchange(entered_, true)) return;
  if (!callbacks_.enter_commands) return;
  clean_state_ = callbacks_.enter_commands(
      {.engine = by_engine(), .left = stream_.queue.cost_left(), .before = before_});
}

// Before each command and each part of a graph. False: the stream has failed, so it is skipped.
bool RunSlice::begin(const Record& record) {
  if (record.kind == Record::kRun) return !stream_.failure.full() || !skip(record);
  if (record.kind != Record::kGraph) return true;
  auto* const run = static_cast<GraphRun*>(record.target);
  if (run->clears_failure()) static_cast<void>(stream_.failure.take());
  if (stream_.failure.full()) {
    delete run;
    return false;
  }
  run->write_parameters();
  return true;
}

// The stream has failed: its commands are skipped. The fence, if there is one, belongs to a caller
// that waits for the command and gets the failure. False: another call has collected that since, so
// the stream is usable, and the caller's command runs.
bool RunSlice::skip(const Record& record) {
  Fence* const fence = record.fence;
  FailurePtr earlier = fence ? stream_.failure.get() : nullptr;
  if (fence && !earlier) return false;
  const auto& kernel = *static_cast<const Kernel*>(record.target);
  if (kernel.traits().skip) {
    enter();
    kernel.traits().skip(record.arguments());
  }
  if (fence) fence->complete(std::move(earlier));
  return true;
}

// Runs a command, or a node, on this thread. False: it failed.
template <class F>
bool RunSlice::run(const Record& record, const Command& command, Cost cost, F&& kernel,
                   std::int64_t node) {
  ++commands_;
  site_ = command.site;
  enter();
  const TracedCommand traced({stream_.device_index, stream_.number}, by_engine(), record.traced_as,
                             command);
  DeviceWorkScope work({.name = command.kernel->name(),
                        .device = stream_.device_index,
                        .stream = stream_.number,
                        .node = node});
  try {
    const RunningScope mark(!command.kernel->traits().may_block);
    const ComputeScope team(callbacks_, cost, by_engine());
    try {
      kernel();
    } catch (const std::exception&) {
      work.check();  // the cause, rather than what came of it
      throw;
    }
    work.check();
    return true;
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended from outside (Python does so at exit); this is no error
  } catch (...) {
    fail(record, command, std::current_exception());
    return false;
  }
}

void RunSlice::fail(const Record& record, const Command& command, std::exception_ptr error) {
  if (record.fence && record.fence->complete(error)) return;
  stream_.poison(*command.kernel, command.site, std::move(error));
}

// The next one, if there is one. False: it failed.
bool RunSlice::run_node(const Record& record) {
  auto& graph = *static_cast<GraphRun*>(record.target);
  if (!graph.has_node()) return true;
  const auto& node = graph.node();
  if (!run(
          record, {node.kernel, node.arguments, node.site}, node.cost, [&] { graph.run_node(); },
          static_cast<std::int64_t>(graph.node_number())))
    return false;
  graph.advance();
  return true;
}

void RunSlice::flush_counters() noexcept {
  auto& counter = by_engine() ? counters::commands_by_engines : counters::commands_by_hosts;
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

void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes) {
  const RunSlice* const slice = RunSlice::innermost_;
  RemoteRunner* const remote = slice ? RemoteRunner::of(slice->stream_.device_index) : nullptr;
  if (!remote || !remote->run({&kernel, arguments, slice->site_, crashes})) kernel.run(arguments);
}

void throw_self_wait() { throw Error("openreg: a command must not wait for its own stream"); }

}  // namespace openreg
