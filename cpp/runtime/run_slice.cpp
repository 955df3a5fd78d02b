#include "runtime/run_slice.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "runtime/adversary.h"
#include "base/counters.h"
#include "base/error.h"
#include "runtime/fence.h"
#include "runtime/graph_exec.h"
#include "runtime/scheduler.h"
#include "base/test_point.h"
#include "base/thread.h"
#include "base/trace.h"

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

}  // namespace

// A command's slice of the trace.
class RunSlice::TracedCommand {
 public:
  TracedCommand(const RunSlice& slice, std::uint32_t id, const Executor::Command& command) noexcept
      : slice_(slice), id_(id), command_(command) {
    if (tracing::on()) begin_ = tracing::now();
  }
  ~TracedCommand() {
    if (begin_ != 0) keep();
  }
  TracedCommand(const TracedCommand&) = delete;
  TracedCommand& operator=(const TracedCommand&) = delete;

  void drop() noexcept { begin_ = 0; }

 private:
  void keep() const noexcept {
    tracing::keep({.what = TraceSlice::What::kCommand,
                   .by_engine = slice_.by_engine(),
                   .id = id_,
                   .device = slice_.stream_.device_index,
                   .stream = slice_.stream_.number,
                   .begin = begin_,
                   .end = tracing::now(),
                   .site = command_.site,
                   .name = command_.kernel->name(),
                   .summary = command_.kernel->summary(command_.arguments)});
  }

  const RunSlice& slice_;
  const std::uint32_t id_;
  const Executor::Command command_;
  std::int64_t begin_ = 0;
};

namespace {

// How long a thread stays with a command in an executor.
constexpr std::chrono::milliseconds kPatience{50};

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
  if (!sent_ && !begin(record)) {
    pop(record);
    return true;
  }
  if (Executor* const executor = Executor::of(stream_.device_index)) [[unlikely]] {
    const InExecutor result = step_in(*executor);
    if (result != InExecutor::kNothing) return result == InExecutor::kHasRun;
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

// The next command, which has ended.
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

// Not called for records and waits.
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
  if (run->hands_over()) static_cast<void>(stream_.failure.take());
  if (stream_.failure.full()) {
    delete run;
    return false;
  }
  run->write_cells();
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
bool RunSlice::run(const Record& record, const Executor::Command& command, Cost cost, F&& kernel,
                   std::int64_t node) {
  ++commands_;
  site_ = command.site;
  enter();
  const TracedCommand traced(*this, record.traced_as, command);
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

void RunSlice::fail(const Record& record, const Executor::Command& command,
                    std::exception_ptr error) {
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
  graph.go_on();
  return true;
}

// Note [Custodians]
// A command may take long in an executor, or for ever: a kernel hangs, or the process is stopped. A
// host that waits for it must notice Ctrl-C, an engine must serve other streams. So after a while
// the thread hands the stream, with its command under way, to a thread that does nothing else: a
// custodian. It finishes the command as the runner would have done, and gives the stream up. In an
// adversarial schedule the runner stays, since the order of commands is its choice.

// Runs the next commands in the device's process, if they belong there.
RunSlice::InExecutor RunSlice::step_in(Executor& executor) {
  const auto batch = sent_ ? sent_->batch() : next_batch();
  if (!batch) return InExecutor::kNothing;
  enter();
  const auto end = run_in(executor, batch);
  if (!end) return InExecutor::kHandedOver;
  take_off(*batch, *end);
  return InExecutor::kHasRun;
}

// What the next command is sent with. Null: it runs here.
std::shared_ptr<const Executor::Batch> RunSlice::next_batch() {
  constexpr std::size_t kMostRecords = 64;
  const Kernel* const next = stream_.next_kernel();
  if (!next || !next->runs_in_executor()) return nullptr;
  // A trace shows single commands, and an adversary chooses among them.
  const bool single = tracing::on() || adversary::acts();
  const auto batch = std::make_shared<Executor::Batch>(single ? 1 : Executor::Batch::kMost);
  for (std::size_t i = 0; i < kMostRecords; ++i) {
    const Record* const record = stream_.queue.behind_front(i);
    if (!record) break;
    if (record->kind == Record::kRun) {
      const auto& kernel = *static_cast<const Kernel*>(record->target);
      if (!kernel.runs_in_executor() ||
          !batch->add({&kernel, record->arguments(), record->site}, record->cost) || record->fence)
        break;
    } else if (record->kind == Record::kGraph) {
      const auto& run = *static_cast<const GraphRun*>(record->target);
      if (i != 0 && (run.hands_over() || run.has_cells())) break;
      if (!run.has_node() || !run.add_to(*batch)) break;
    } else {
      break;
    }
  }
  return batch->empty() ? nullptr : batch;
}

// Without a value the stream has been handed over.
std::optional<Executor::Sent::End> RunSlice::run_in(
    Executor& executor, const std::shared_ptr<const Executor::Batch>& batch) {
  const bool stays = sent_.has_value() || adversary::acts();
  std::optional<TracedCommand> traced;
  Cost cost;
  if (batch->commands().size() == 1) {
    cost = batch->cost();
    traced.emplace(*this, stream_.queue.front().traced_as, batch->commands().front());
  }
  const ComputeScope team(callbacks_, cost, by_engine());
  try {
    auto sent = sent_ ? *std::exchange(sent_, std::nullopt) : executor.send(batch);
    if (wait_for(sent, stays)) return sent.end();
    if (traced) traced->drop();
    return std::nullopt;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return Executor::Sent::End{.completed = 0, .error = std::current_exception()};
  }
}

// False: another thread has taken the stream over.
bool RunSlice::wait_for(Executor::Sent& sent, bool stays) {
  const RunningScope outside(false);  // exit need not wait: the process ends with this one
  if (!stays && !sent.wait(kPatience) && hand_over(sent)) return false;
  return sent.wait();
}

// False: the system refuses a thread.
bool RunSlice::hand_over(Executor::Sent& sent) {
  std::shared_ptr<std::optional<Executor::Sent>> shared;
  try {
    shared = std::make_shared<std::optional<Executor::Sent>>(std::move(sent));
    start_detached_thread("openreg-custody", [&stream = stream_, shared] {
      bool owned = false;
      {
        RunSlice slice(stream, Runner::kEngine);
        slice.sent_ = std::move(*shared);
        owned = slice.step();
      }
      if (owned) Scheduler::get().release(stream);
    });
  } catch (const std::exception&) {
    if (shared) sent = std::move(**shared);
    return false;
  }
  return true;
}

// Takes off the queue what has run, or failed.
void RunSlice::take_off(const Executor::Batch& batch, const Executor::Sent::End& end) {
  commands_ += end.completed + (end.error ? 1 : 0);
  std::size_t left = end.completed;
  const Executor::Command* command = batch.commands().data();
  for (const auto& item : batch.items()) {
    const Record& record = stream_.queue.front();
    const auto completed = std::min<std::size_t>(left, item.commands);
    const bool failed = completed < item.commands && end.error;
    if (failed) fail(record, command[completed], end.error);
    if (record.kind == Record::kGraph) {
      auto* const run = static_cast<GraphRun*>(record.target);
      run->go_on(completed);
      if (run->has_node() && !failed) return;
      delete run;
    } else if (completed == 0 && !failed) {
      return;
    }
    pop(record);
    if (failed) return;
    left -= completed;
    command += item.commands;
  }
}

void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes) {
  RunSlice* const slice = RunSlice::innermost_;
  Executor* const executor = slice ? Executor::of(slice->stream_.device_index) : nullptr;
  if (!executor || !kernel.runs_in_executor()) return kernel.run(arguments);
  const auto batch = std::make_shared<Executor::Batch>();
  batch->add({&kernel, arguments, slice->site_, crashes}, {});
  auto sent = executor->send(batch);
  slice->wait_for(sent, /*stays=*/true);
  const auto end = sent.end();
  if (end.error) std::rethrow_exception(end.error);
  if (end.completed == 0) kernel.run(arguments);
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

void throw_self_wait() { throw Error("openreg: a command must not wait for its own stream"); }

}  // namespace openreg
