// How a run slice runs commands in an executor (executor/executor.h).

#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/thread.h"
#include "executor/executor.h"
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

// Adds the next nodes that run in executors, as far as there is room: behind other commands all or
// none, so that a graph has few different parts. Returns whether those are all that are left.
bool add_nodes(Executor::Batch& batch, const GraphRun& run) {
  const bool all_or_none = !batch.empty();
  const Cost before = batch.cost();
  std::uint32_t added = 0;
  for (const auto number : run.rest()) {
    const auto& node = run.exec().graph().nodes[number];
    if (run.has_fault(number) || !node.kernel->runs_in_executor() ||
        !batch.add({node.kernel, node.arguments, node.site}, node.cost))
      break;
    ++added;
  }
  const bool are_all = added == run.rest().size();
  if (all_or_none && !are_all) {
    batch.remove(added, before);
  } else if (added != 0) {
    batch.join_nodes(added, run.exec().number(), run.node_number());
  }
  return are_all;
}

// What the next command is sent with. Null: it runs here.
std::shared_ptr<const Executor::Batch> next_batch(StreamImpl& stream) {
  constexpr std::size_t kMostRecords = 64;
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
      if (!graph.has_node() || !add_nodes(*batch, graph)) break;
    } else {
      break;
    }
  }
  return batch->empty() ? nullptr : batch;
}

/// The next commands of a run slice, from sending them to retiring them.
class RemoteRun {
 public:
  /// With `sent` those commands are under way: a detached waiter runs the slice.
  RemoteRun(RunSlice& slice, Executor& executor,
            std::optional<Executor::PendingBatch> sent = std::nullopt)
      : slice_(slice), executor_(executor), sent_(std::move(sent)) {}

  RemoteRunner::Result step() {
    const auto batch = sent_ ? sent_->batch() : next_batch(slice_.stream());
    if (!batch) return RemoteRunner::Result::kNothing;
    slice_.enter();
    const auto end = run(batch);
    if (!end) return RemoteRunner::Result::kHandedOver;
    retire(*batch, *end);
    return RemoteRunner::Result::kHasRun;
  }

 private:
  // Without a value the stream has been handed over.
  std::optional<Executor::PendingBatch::End> run(
      const std::shared_ptr<const Executor::Batch>& batch) {
    const bool stays = sent_.has_value() || adversary::is_active();
    StreamImpl& stream = slice_.stream();
    std::optional<TracedCommand> traced;
    Cost cost;
    if (batch->commands().size() == 1) {
      cost = batch->cost();
      traced.emplace(StreamTrack{stream.device_index, stream.number}, slice_.by_engine(),
                     stream.queue.front().traced_as, batch->commands().front());
    }
    const ComputeScope team(current_callbacks(), cost, slice_.by_engine());
    try {
      auto sent = sent_ ? *std::exchange(sent_, std::nullopt) : executor_.send(batch);
      if (wait(sent, stays)) return sent.end();
      if (traced) traced->drop();
      return std::nullopt;
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      return Executor::PendingBatch::End{.completed = 0, .error = std::current_exception()};
    }
  }

  // False: another thread has taken the stream over.
  bool wait(Executor::PendingBatch& sent, bool stays) {
    const RunningScope outside(false);  // exit need not wait: the process ends with this one
    if (!stays && !sent.wait(kPatience) && hand_over(sent)) return false;
    return sent.wait();
  }

  // False: the thread cannot be started.
  bool hand_over(Executor::PendingBatch& sent) {
    std::shared_ptr<Executor::PendingBatch> shared;
    try {
      shared = std::make_shared<Executor::PendingBatch>(std::move(sent));
      start_detached_thread("openreg-waiter",
                            [&stream = slice_.stream(), &executor = executor_, shared] {
                              {
                                RunSlice slice(stream, RunSlice::Runner::kEngine);
                                RemoteRun(slice, executor, std::move(*shared)).step();
                              }
                              Scheduler::get().release(stream);
                            });
    } catch (const std::exception&) {
      if (shared) sent = std::move(*shared);
      return false;
    }
    return true;
  }

  // Retires what has run, or failed.
  void retire(const Executor::Batch& batch, const Executor::PendingBatch::End& end) {
    slice_.count(end.completed + (end.error ? 1 : 0));
    std::size_t left = end.completed;
    const Command* command = batch.commands().data();
    for (const auto& item : batch.items()) {
      const Record& record = slice_.stream().queue.front();
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

  RunSlice& slice_;
  Executor& executor_;
  std::optional<Executor::PendingBatch> sent_;
};

}  // namespace

RemoteRunner::Result Executor::run_next(RunSlice& slice) { return RemoteRun(slice, *this).step(); }

bool Executor::run(const Command& command) {
  if (!command.kernel->runs_in_executor()) return false;
  const auto batch = std::make_shared<Batch>();
  batch->add(command, {});
  auto sent = send(batch);
  {
    const RunningScope outside(false);
    sent.wait();
  }
  const auto end = sent.end();
  if (end.error) std::rethrow_exception(end.error);
  return end.completed != 0;
}

}  // namespace openreg
