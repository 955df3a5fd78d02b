#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor_process.h"
#include "runtime/command.h"
#include "runtime/remote_runner.h"

namespace openreg {

namespace wire {
struct AnswerHeader;
}

/// The process that runs a device's kernels, with TORCH_OPENREG_EXECUTOR=process: one that crashes
/// takes the device, not the program. Streams, events and graphs stay in the program, which sends
/// the commands and waits for them. Commands that are no kernels (KernelTraits::in_executor) run in
/// the program, which has the device's memory, too. The process is started by the first command.
/// See Note [Executors] in executor.cpp. Thread safe.
class Executor final : public RemoteRunner {
 public:
  class Batch;
  class PendingBatch;

  /// The executor of a device, which must exist.
  static RemoteRunner& find(int device);

  /// See Note [Detached waiters] in remote_run.cpp.
  Result run_next(RunSlice& slice) override;
  bool run(const Command& command) override;
  void forget_graph(std::uint64_t graph) noexcept override;
  std::optional<pid_t> process() const override;
  bool end() override;
  void start() override;

  /// Sends commands, at least one, of kernels that run there. Throws Error if the process cannot be
  /// started.
  PendingBatch send(std::shared_ptr<const Batch> batch);

 private:
  struct State;
  using Process = executor::ExecutorProcess;

  explicit Executor(int device);
  std::shared_ptr<Process> running();

  State* const state_;  // leaked
};

/// Commands that an executor runs one after another: a long one alone, or short ones for about a
/// millisecond.
class Executor::Batch {
 public:
  /// A command of its own, or consecutive nodes of a graph, which the process keeps prepared for
  /// the next run.
  struct Item {
    std::uint64_t graph = 0;  // none
    std::uint32_t first = 0;  // node
    std::uint32_t commands = 1;
  };

  static constexpr std::size_t kMost = 2048;
  /// Reserves capacity for `most` commands.
  explicit Batch(std::size_t most = kMost) : most_(most) {}

  /// False: there is no room.
  bool add(const Command& command, Cost cost);
  /// The newest commands, which were added one by one, are nodes of a graph. Their number and that
  /// of the first distinguish them from others of the graph.
  void join_nodes(std::uint32_t commands, std::uint64_t graph, std::uint32_t first);
  /// Removes the newest commands, which were added one by one. `cost`: what cost() was before.
  void remove(std::size_t commands, Cost cost);

  bool empty() const noexcept { return commands_.empty(); }
  const std::vector<Command>& commands() const noexcept { return commands_; }
  const std::vector<Item>& items() const noexcept { return items_; }
  /// The total cost of the commands.
  Cost cost() const noexcept { return cost_; }

 private:
  std::size_t most_;
  std::vector<Command> commands_;
  std::vector<Item> items_;
  Cost cost_;
};

/// A batch that has been sent. Used by one thread at a time.
class Executor::PendingBatch {
 public:
  PendingBatch(PendingBatch&& other) noexcept = default;
  PendingBatch& operator=(PendingBatch&& other) noexcept = default;

  const std::shared_ptr<const Batch>& batch() const noexcept { return batch_; }
  /// Waits for the end of the batch. False: the limit has been reached first.
  bool wait(std::optional<std::chrono::milliseconds> limit = std::nullopt) {
    return request_.wait(limit);
  }
  /// How the batch has ended.
  struct End {
    /// How many commands of the batch have run.
    std::size_t completed;
    /// What the next one threw, or Error if the process has ended. Null: all have run, or the
    /// process has not got what the next one needs; it is sent again, or runs in the program.
    std::exception_ptr error;
  };
  /// Returns how the batch has ended. Called once, after wait().
  End end();

 private:
  friend class Executor;
  PendingBatch(State& state, std::shared_ptr<const Batch> batch, std::shared_ptr<Process> process);
  void send();
  void note_end(std::uint32_t status, const wire::AnswerHeader& answer);

  State* state_;
  const Process* process_;
  std::shared_ptr<const Batch> batch_;
  std::vector<bool> is_new_;  // items that were sent with how they are made
  Process::Request request_;
};

/// What the layers above add to commands in executors. Each may be null.
struct ExecutorCallbacks {
  /// Settings of the program that kernels read when they run.
  using Settings = std::array<std::byte, 64>;

  // --- In the program ---

  /// What is started.
  executor::Program (*program)() = nullptr;
  /// What the calling thread, which runs commands, would compute with.
  int (*threads)() = nullptr;
  Settings (*settings)() = nullptr;
  /// Throws what a kernel threw in the process: an exception of the kind that classify() named.
  void (*rethrow)(std::uint32_t kind, const std::string& message) = nullptr;
  /// Emits the warnings of a command, as take_warnings() returned them.
  void (*warn)(const std::string& warnings) = nullptr;

  // --- In the process ---

  /// Once, and by each thread that runs commands.
  void (*begin)() = nullptr;
  void (*begin_thread)() = nullptr;
  void (*use_threads)(int threads) = nullptr;
  void (*use_settings)(const Settings& settings) = nullptr;
  /// The kind of an exception, for rethrow().
  std::uint32_t (*classify)(const std::exception_ptr& error) = nullptr;
  /// The warnings since the last call on this thread.
  std::string (*take_warnings)() = nullptr;
};

/// Meant for library initialisation, before the first use: there are executors if the setting says
/// so.
void install_executor_callbacks(const ExecutorCallbacks& callbacks);
const ExecutorCallbacks& executor_callbacks() noexcept;

/// The main function of an executor's process, whose program is at the other end of the socket.
[[noreturn]] void serve_executor(int socket);

}  // namespace openreg
