#include "executor/remote_run.h"

#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/thread.h"
#include "runtime/adversary.h"
#include "runtime/compute_scope.h"
#include "runtime/graph_exec.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/trace.h"
#include "runtime/traced_command.h"

namespace openreg {

// Note [Detached waiters]
// A command may take long in an executor, or for ever: a kernel hangs, or the process is stopped. A
// host that waits for it must notice Ctrl-C, an engine must serve other streams. So after a while
// the thread hands the stream, with its command under way, to a detached thread that does nothing
// else. It waits for the command, finishes it as the runner would have done, and gives the stream
// up. In an adversarial schedule the runner stays, since the order of commands is its choice.

namespace {
// How long a thread stays with a command in an executor.
constexpr std::chrono::milliseconds kPatience{50};
}  // namespace

RemoteRun::Result RemoteRun::step() {
  const auto batch = slice_.pending_ ? slice_.pending_->batch() : next_batch();
  if (!batch) return Result::kNothing;
  slice_.enter();
  const auto end = run(batch);
  if (!end) return Result::kHandedOver;
  retire(*batch, *end);
  return Result::kHasRun;
}

// What the next command is sent with. Null: it runs here.
std::shared_ptr<const Executor::Batch> RemoteRun::next_batch() {
  constexpr std::size_t kMostRecords = 64;
  StreamImpl& stream = slice_.stream_;
  const Kernel* const next = stream.next_kernel();
  if (!next || !next->runs_in_executor()) return nullptr;
  // A trace shows single commands, and an adversary chooses among them.
  const bool single = tracing::on() || adversary::is_active();
  const auto batch = std::make_shared<Executor::Batch>(single ? 1 : Executor::Batch::kMost);
  for (std::size_t i = 0; i < kMostRecords; ++i) {
    const Record* const record = stream.queue.behind_front(i);
    if (!record) break;
    if (record->kind == Record::kRun) {
      const auto& kernel = *static_cast<const Kernel*>(record->target);
      if (!kernel.runs_in_executor() ||
          !batch->add({&kernel, record->arguments(), record->site}, record->cost) || record->fence)
        break;
    } else if (record->kind == Record::kGraph) {
      const auto& graph = *static_cast<const GraphRun*>(record->target);
      if (i != 0 && (graph.clears_failure() || graph.has_parameters())) break;
      if (!graph.has_node() || !graph.add_to(*batch)) break;
    } else {
      break;
    }
  }
  return batch->empty() ? nullptr : batch;
}

// Without a value the stream has been handed over.
std::optional<Executor::PendingBatch::End> RemoteRun::run(
    const std::shared_ptr<const Executor::Batch>& batch) {
  StreamImpl& stream = slice_.stream_;
  const bool stays = slice_.pending_.has_value() || adversary::is_active();
  std::optional<TracedCommand> traced;
  Cost cost;
  if (batch->commands().size() == 1) {
    cost = batch->cost();
    traced.emplace(StreamTrack{stream.device_index, stream.number}, slice_.by_engine(),
                   stream.queue.front().traced_as, batch->commands().front());
  }
  const ComputeScope team(slice_.callbacks_, cost, slice_.by_engine());
  try {
    auto sent =
        slice_.pending_ ? *std::exchange(slice_.pending_, std::nullopt) : executor_.send(batch);
    if (wait(sent, stays ? nullptr : &stream)) return sent.end();
    if (traced) traced->drop();
    return std::nullopt;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return Executor::PendingBatch::End{.completed = 0, .error = std::current_exception()};
  }
}

// False: another thread has taken the stream over, which it may not if it is null.
bool RemoteRun::wait(Executor::PendingBatch& sent, StreamImpl* hand_over_from) {
  const RunningScope outside(false);  // exit need not wait: the process ends with this one
  if (hand_over_from && !sent.wait(kPatience) && hand_over(sent, *hand_over_from)) return false;
  return sent.wait();
}

// False: the thread cannot be started.
bool RemoteRun::hand_over(Executor::PendingBatch& sent, StreamImpl& stream) {
  std::shared_ptr<std::optional<Executor::PendingBatch>> shared;
  try {
    shared = std::make_shared<std::optional<Executor::PendingBatch>>(std::move(sent));
    start_detached_thread("openreg-waiter", [&stream, shared] {
      bool owned = false;
      {
        RunSlice slice(stream, RunSlice::Runner::kEngine);
        slice.pending_ = std::move(*shared);
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

// Retires what has run, or failed.
void RemoteRun::retire(const Executor::Batch& batch, const Executor::PendingBatch::End& end) {
  slice_.commands_ += end.completed + (end.error ? 1 : 0);
  std::size_t left = end.completed;
  const Executor::Command* command = batch.commands().data();
  for (const auto& item : batch.items()) {
    const Record& record = slice_.stream_.queue.front();
    const auto completed = std::min<std::size_t>(left, item.commands);
    const bool failed = completed < item.commands && end.error;
    if (failed) slice_.fail(record, command[completed], end.error);
    if (record.kind == Record::kGraph) {
      auto* const graph = static_cast<GraphRun*>(record.target);
      graph->advance(completed);
      if (graph->has_node() && !failed) return;
      delete graph;
    } else if (completed == 0 && !failed) {
      return;
    }
    slice_.pop(record);
    if (failed) return;
    left -= completed;
    command += item.commands;
  }
}

void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes) {
  const RunSlice* const slice = RunSlice::innermost_;
  Executor* const executor = slice ? Executor::of(slice->stream_.device_index) : nullptr;
  if (!executor || !kernel.runs_in_executor()) return kernel.run(arguments);
  const auto batch = std::make_shared<Executor::Batch>();
  batch->add({&kernel, arguments, slice->site_, crashes}, {});
  auto sent = executor->send(batch);
  RemoteRun::wait(sent, nullptr);
  const auto end = sent.end();
  if (end.error) std::rethrow_exception(end.error);
  if (end.completed == 0) kernel.run(arguments);
}

}  // namespace openreg
