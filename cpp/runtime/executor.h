#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
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

#include "runtime/command.h"
#include "runtime/executor/executor_process.h"
#include "runtime/launch_site.h"

namespace openreg {

namespace detail {
extern constinit std::atomic<bool> g_executors;
}

/// The process that runs a device's kernels, with TORCH_OPENREG_EXECUTOR=process: one that crashes
/// takes the device, not the program. Streams, events and graphs stay in the program, which sends
/// each command and waits for it; so do commands that are no kernels (KernelTraits::in_executor),
/// since the program, too, has the device's memory. The process is started by the first command.
/// See Note [Executors] in executor.cpp. Thread safe.
class Executor {
 public:
  class Command;
  /// A command, which lives elsewhere.
  struct NodeView {
    const Kernel* kernel;
    std::span<const std::byte> arguments;
    LaunchSite site;
  };

  /// That of a device, which must exist; null if its kernels run in the program.
  static Executor* of(int device) noexcept {
    return detail::g_executors.load(std::memory_order_relaxed) ? &find(device) : nullptr;
  }
  /// Called when the device comes into use: there are executors from now on if the setting says so.
  static void begin_use();

  /// Sends a command. No value: its kernel runs in the program only. With `crashes` the process
  /// ends when it begins. Throws Error if the process cannot be started.
  std::optional<Command> run(const Kernel& kernel, std::span<const std::byte> arguments,
                             LaunchSite site, bool crashes = false);

  /// Consecutive nodes of a graph, which the process keeps prepared for the next run. Each has a
  /// kernel that runs there, and is short. `graph` identifies the graph.
  struct Nodes {
    std::uint64_t graph;
    std::uint32_t first;  // distinguishes them, with their count, from others of the graph
    std::vector<NodeView> nodes;
  };
  /// Sends nodes. No value: one of their kernels runs in the program only. Throws as above.
  std::optional<Command> run(const Nodes& nodes);
  /// The graph has been destroyed.
  static void forget_graph(std::uint64_t graph) noexcept;

  /// The process's number, if it runs.
  std::optional<pid_t> process() const;
  /// Ends the process; commands that it runs fail. Returns whether there was one, perhaps one that
  /// had ended by itself.
  bool end();
  /// Starts the process if it does not run. Throws Error as run() does.
  void start();

 private:
  friend class Command;
  struct State;
  using Process = executor::ExecutorProcess;

  explicit Executor(int device);
  static Executor& find(int device) noexcept;
  std::shared_ptr<Process> running();

  State* const state_;  // leaked
};

/// A command that has been sent. Used by one thread at a time.
class Executor::Command {
 public:
  Command(Command&& other) noexcept = default;
  Command& operator=(Command&& other) noexcept = default;

  /// Waits for its end. False: the limit has been reached first.
  bool wait(std::optional<std::chrono::milliseconds> limit = std::nullopt) {
    return request_.wait(limit);
  }
  /// After wait(). False: the process cannot run this kernel, and never will. Throws what the
  /// command threw, and Error if the process has ended.
  bool finish();
  bool is_nodes() const noexcept { return nodes_.has_value(); }
  /// After finish() has thrown, for nodes: how many have run before the one that failed.
  std::size_t completed() const noexcept { return completed_; }

 private:
  friend class Executor;
  Command(State& state, const std::vector<NodeView>& commands, std::shared_ptr<Process> process);
  void note_kernels(bool in_process);

  State* state_;
  std::vector<const Kernel*> kernels_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> nodes_;  // the graph, and the first one
  Process::Request request_;
  std::size_t completed_ = 0;
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

/// Meant for library initialisation, before the first use.
void install_executor_callbacks(const ExecutorCallbacks& callbacks);
const ExecutorCallbacks& executor_callbacks() noexcept;

/// The main function of an executor's process, whose program is at the other end of the socket.
[[noreturn]] void serve_executor(int socket);

}  // namespace openreg
