#include "runtime/run_slice.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "runtime/adversary.h"
#include "runtime/counters.h"
#include "runtime/error.h"
#include "runtime/fence.h"
#include "runtime/graph_exec.h"
#include "runtime/scheduler.h"
#include "runtime/test_point.h"
#include "runtime/thread.h"
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

}  // namespace

// A command's slice of the trace.
class RunSlice::TracedCommand {
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

  void drop() noexcept { begin_ = 0; }

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
  FenceRef recorded;
  switch (record.kind) {
    case Record::kRun:
      recorded = FenceRef::attach(record.fence);
      if (run(record, record.fence) == Outcome::kHandedOver) {
        recorded.detach();
        return false;
      }
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
      if (const Outcome outcome = run_part(record); outcome != Outcome::kEnded)
        return outcome == Outcome::kGoesOn;
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
RunSlice::Outcome RunSlice::run(const Record& record, Fence* fence) {
  const auto& kernel = *static_cast<const Kernel*>(record.target);
  if (stream_.failure.full() && !sent_) {
    // If this is null although there is a fence, another call has collected the failure since: the
    // stream is usable, and the caller's command runs.
    FailurePtr earlier = fence ? stream_.failure.get() : nullptr;
    if (!fence || earlier) {
      if (kernel.traits().skip) {
        enter();
        kernel.traits().skip(record.arguments());
      }
      if (fence) fence->complete(std::move(earlier));
      return Outcome::kEnded;
    }
  }
  if (!sent_) ++commands_;
  site_ = record.site;
  enter();
  TracedCommand traced(stream_, record.traced_as, kernel, record.arguments(), record.site,
                       runner_ == Runner::kEngine);
  try {
    const bool ended = compute(executor_of(kernel), kernel, record.arguments(), record.cost,
                               record.site, [&] { kernel.run(record.arguments()); });
    if (!ended) {
      traced.drop();
      return Outcome::kHandedOver;
    }
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended from outside (Python does so at exit); this is no error
  } catch (...) {
    if (fence && fence->complete(std::current_exception())) return Outcome::kEnded;
    stream_.poison(kernel, record.site, std::current_exception());
  }
  return Outcome::kEnded;
}

Executor* RunSlice::executor_of(const Kernel& kernel) const noexcept {
  return kernel.traits().in_executor ? Executor::of(stream_.device_index) : nullptr;
}

// False: the stream has been handed over.
template <class F>
bool RunSlice::compute(Executor* executor, const Kernel& kernel,
                       std::span<const std::byte> arguments, Cost cost, LaunchSite site, F&& here) {
  const RunningScope mark(!kernel.traits().may_block);
  const ComputeScope team(callbacks_, cost, runner_ == Runner::kEngine);
  if (executor) [[unlikely]] {
    switch (run_in(*executor, kernel, arguments, site)) {
      case Outcome::kEnded:
        return true;
      case Outcome::kHandedOver:
        return false;
      case Outcome::kGoesOn:
        break;
    }
  }
  here();
  return true;
}

// Note [Custodians]
// A command may take long in an executor, or for ever: a kernel hangs, or the process is stopped. A
// host that waits for it must notice Ctrl-C, an engine must serve other streams. So after a while
// the thread hands the stream, with its command under way, to a thread that does nothing else: a
// custodian. It finishes the command as the runner would have done, and gives the stream up. In an
// adversarial schedule the runner stays, since the order of commands is its choice.

// kGoesOn: the command has to run here.
RunSlice::Outcome RunSlice::run_in(Executor& executor, const Kernel& kernel,
                                   std::span<const std::byte> arguments, LaunchSite site) {
  const bool stays = sent_.has_value() || adversary::acts();
  auto command = sent_ ? std::exchange(sent_, std::nullopt) : executor.run(kernel, arguments, site);
  if (!command) return Outcome::kGoesOn;
  return finish(*command, stays);
}

RunSlice::Outcome RunSlice::finish(Executor::Command& command, bool stays) {
  const RunningScope outside(false);  // exit need not wait: the process ends with this one
  if (!stays && !command.wait(kPatience) && hand_over(command)) return Outcome::kHandedOver;
  command.wait();
  return command.finish() ? Outcome::kEnded : Outcome::kGoesOn;
}

// False: the system refuses a thread.
bool RunSlice::hand_over(Executor::Command& command) {
  const auto shared = std::make_shared<std::optional<Executor::Command>>();
  const auto custodian = [&stream = stream_, shared] {
    bool owned = false;
    {
      RunSlice slice(stream, Runner::kEngine);
      slice.sent_ = std::move(*shared);
      owned = slice.step();
    }
    if (owned) Scheduler::get().release(stream);
  };
  shared->emplace(std::move(command));
  try {
    start_detached_thread(custodian);
  } catch (const std::system_error&) {
    command = std::move(**shared);
    return false;
  }
  return true;
}

void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes) {
  RunSlice* const slice = RunSlice::innermost_;
  if (slice && kernel.traits().in_executor) {
    if (Executor* const executor = Executor::of(slice->stream_.device_index)) {
      if (auto command = executor->run(kernel, arguments, slice->site_, crashes)) {
        if (slice->finish(*command, /*stays=*/true) == RunSlice::Outcome::kEnded) return;
      }
    }
  }
  kernel.run(arguments);
}

// Runs several nodes of a graph, if an executor takes them. No value: the next one comes alone.
std::optional<RunSlice::Outcome> RunSlice::run_nodes(GraphRun& run) {
  if (!run.has_node() || tracing::on() || adversary::acts()) return std::nullopt;
  Executor* const executor = executor_of(*run.node().kernel);
  if (!executor || (sent_ && !sent_->is_nodes())) return std::nullopt;
  const auto nodes = run.nodes_for_executor();
  if (nodes.nodes.size() < 2) return std::nullopt;
  enter();
  std::optional<Executor::Command> command;
  std::size_t ended = nodes.nodes.size();
  try {
    const bool stays = sent_.has_value();
    command = sent_ ? std::exchange(sent_, std::nullopt) : executor->run(nodes);
    if (!command) return std::nullopt;
    const Outcome outcome = finish(*command, stays);
    if (outcome == Outcome::kHandedOver) return outcome;
    if (outcome == Outcome::kGoesOn) return std::nullopt;
  } catch (...) {
    ended = command ? command->completed() : 0;
    const auto& failed = nodes.nodes[std::min(ended, nodes.nodes.size() - 1)];
    stream_.poison(*failed.kernel, failed.site, std::current_exception());
    ++ended;
  }
  commands_ += ended;
  run.go_on(ended);
  return Outcome::kEnded;
}

// Runs one node of a graph, or some. If there are more, the record stays in the queue.
RunSlice::Outcome RunSlice::run_part(const Record& record) {
  auto& run = *static_cast<GraphRun*>(record.target);
  if (run.hands_over()) static_cast<void>(stream_.failure.take());
  if (!stream_.failure.full() || sent_) {
    run.write_cells();
    if (const auto outcome = run_nodes(run)) {
      if (*outcome == Outcome::kHandedOver) return *outcome;
    } else if (run.has_node()) {
      if (!sent_) ++commands_;
      enter();
      const auto& node = run.node();
      site_ = node.site;
      TracedCommand traced(stream_, record.traced_as, *node.kernel, node.arguments, node.site,
                           runner_ == Runner::kEngine);
      Executor* const executor = run.has_fault() ? nullptr : executor_of(*node.kernel);
      try {
        const bool ended = compute(executor, *node.kernel, node.arguments, node.cost, node.site,
                                   [&] { run.run_node(); });
        if (!ended) {
          traced.drop();
          return Outcome::kHandedOver;
        }
      } catch (const abi::__forced_unwind&) {
        throw;
      } catch (...) {
        stream_.poison(*node.kernel, node.site, std::current_exception());
      }
      run.go_on();
    }
    if (run.has_node() && !stream_.failure.full()) return Outcome::kGoesOn;
  }
  delete &run;
  return Outcome::kEnded;
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
