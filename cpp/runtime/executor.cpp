#include "runtime/executor.h"

#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/address_space/address_space.h"
#include "runtime/device_health.h"
#include "runtime/error.h"
#include "runtime/executor_wire.h"
#include "runtime/mutex.h"
#include "runtime/settings.h"

namespace openreg {

// Note [Executors]
//
// The seam is where a run slice would call a kernel (run_slice.cpp): the bytes of the command go to
// a thread of the device's process, and the thread of the program sleeps until the answer. So
// everything that orders work, traces it, checks it or fails it on purpose is as without executors,
// and only what a kernel does happens elsewhere.
//
//   program                                    executor
//   thread of a run slice ---- channel ------> thread of that channel
//   thread that changes what is mapped ------> thread of the socket
//
// The device's memory is a file that both map, each in an aperture of its own: commands hold
// pointers into the window, which are the same here and there. The process maps only what the
// device has committed, so that a wild write faults.
//
// A kernel is found by its id, because the process loads the same library. One that was made while
// the program ran (a boxed operator, compiled code) is made there by the first command that needs
// it (KernelMaker); if that is not possible, it runs in the program. Settings that kernels read
// travel with each command.

constinit std::atomic<bool> detail::g_executors{false};

namespace {

ExecutorCallbacks& installed_callbacks() noexcept {
  static ExecutorCallbacks installed;
  return installed;
}

// How the process makes the kernel; empty: it has it, or cannot have it.
std::string recipe_of(const Kernel& kernel) {
  const KernelMaker* const maker = kernel.traits().maker;
  if (!maker) return {};
  const auto description = maker->describe(kernel);
  if (!description) return {};
  std::string recipe;
  wire::append_text(recipe, maker->name());
  wire::append_text(recipe, kernel.name());
  wire::append_text(recipe, *description);
  return recipe;
}

wire::Header header_here() {
  const auto& callbacks = executor_callbacks();
  wire::Header header{};
  if (callbacks.settings) header.settings = callbacks.settings();
  if (callbacks.threads) header.threads = callbacks.threads();
  return header;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

struct Executor::State {
  enum class Where : bool { kProgram, kProcess };

  explicit State(int device) : device(device) {}

  std::string describe(const executor::ExecutorProcess::End& end) OPENREG_REQUIRES(mutex);
  void note_end(const executor::ExecutorProcess::End& end) OPENREG_EXCLUDES(mutex);

  const int device;
  Mutex starting;  // held while a process starts or is being ended
  mutable Mutex mutex;
  std::shared_ptr<Process> process OPENREG_GUARDED_BY(mutex);
  bool is_being_ended OPENREG_GUARDED_BY(mutex) = false;
  std::string why_ended OPENREG_GUARDED_BY(mutex);
  std::optional<Where> where(const Kernel& kernel) const OPENREG_REQUIRES(mutex) {
    const auto known = kernels.find(kernel.id());
    return known == kernels.end() ? std::nullopt : std::optional(known->second);
  }

  // Where kernels run, if that is known.
  std::unordered_map<std::uint64_t, Where> kernels OPENREG_GUARDED_BY(mutex);
  // The nodes that the process has, by graph: the first, and how many.
  std::map<std::uint64_t, std::set<std::pair<std::uint32_t, std::size_t>>> nodes
      OPENREG_GUARDED_BY(mutex);
  // The newest request of each channel: a command, or nodes.
  std::array<std::vector<NodeView>, executor::SharedBlock::kChannels> sent
      OPENREG_GUARDED_BY(mutex);
};

Executor::Executor(int device) : state_(new State(device)) {}

Executor& Executor::find(int device) noexcept {
  static auto& executors = *[] {
    auto* const made = new std::vector<Executor>;
    for (int i = 0; i < settings().devices; ++i) made->push_back(Executor(i));
    return made;
  }();
  return executors[static_cast<std::size_t>(device)];
}

void Executor::begin_use() {
  if (settings().executor_process) detail::g_executors.store(true, std::memory_order_relaxed);
}

std::string Executor::State::describe(const executor::ExecutorProcess::End& end) {
  if (!end.channel) return end.what;
  const auto& commands = sent[*end.channel];
  if (commands.empty()) return end.what;
  const auto& of = commands[std::min<std::size_t>(end.progress, commands.size() - 1)];
  return end.what + " while it ran " + of.kernel->name() + launched_by(of.site);
}

void Executor::State::note_end(const executor::ExecutorProcess::End& end) {
  bool expected = false;
  std::string why;
  {
    const LockGuard lock(mutex);
    why = why_ended = is_being_ended ? "it was reset" : describe(end);
    expected = is_being_ended;
  }
  if (!expected) stop_device(device, why);
}

void Executor::start() { static_cast<void>(running()); }

std::shared_ptr<Executor::Process> Executor::running() {
  auto& state = *state_;
  const auto current = [&] {
    const LockGuard lock(state.mutex);
    return state.process;
  };
  if (auto process = current()) return process;
  const LockGuard one_at_a_time(state.starting);
  if (auto process = current()) return process;
  {
    const LockGuard lock(state.mutex);
    std::erase_if(state.kernels,
                  [](const auto& each) { return each.second == State::Where::kProcess; });
    state.nodes.clear();
    state.is_being_ended = false;
  }
  auto process = Process::start(executor_callbacks().program(), state.device,
                                [&state](const Process::End& end) { state.note_end(end); });
  AddressSpace::get().observe(state.device, process.get());
  const LockGuard lock(state.mutex);
  return state.process = process;
}

bool Executor::end() {
  auto& state = *state_;
  const LockGuard one_at_a_time(state.starting);
  std::shared_ptr<Process> process;
  {
    const LockGuard lock(state.mutex);
    process = state.process;
    state.is_being_ended = true;
  }
  if (!process) return false;
  process->end();
  AddressSpace::get().observe(state.device, nullptr);
  const LockGuard lock(state.mutex);
  state.process = nullptr;
  return true;
}

std::optional<pid_t> Executor::process() const {
  const LockGuard lock(state_->mutex);
  if (!state_->process || state_->process->has_ended()) return std::nullopt;
  return state_->process->number();
}

std::optional<Executor::Command> Executor::run(const Kernel& kernel,
                                               std::span<const std::byte> arguments,
                                               LaunchSite site, bool crashes) {
  auto& state = *state_;
  const auto process = running();
  std::optional<State::Where> where;
  {
    const LockGuard lock(state.mutex);
    where = state.where(kernel);
  }
  if (where == State::Where::kProgram) return std::nullopt;
  std::optional<Command> command(Command(state, {{&kernel, {}, site}}, process));
  const std::string recipe = where ? std::string() : recipe_of(kernel);
  const auto header = header_here();
  const wire::CommandHeader of_command{kernel.id(), static_cast<std::uint32_t>(recipe.size()),
                                       crashes};
  command->request_.send(wire::kRunCommand, std::array{bytes_of(header), bytes_of(of_command),
                                                       bytes_of(recipe), arguments});
  return command;
}

std::optional<Executor::Command> Executor::run(const Nodes& nodes) {
  auto& state = *state_;
  const auto process = running();
  bool is_known = false;
  {
    const LockGuard lock(state.mutex);
    is_known = state.nodes[nodes.graph].contains({nodes.first, nodes.nodes.size()});
    for (const auto& node : nodes.nodes) {
      if (state.where(*node.kernel) == State::Where::kProgram) return std::nullopt;
    }
  }
  std::string definition;
  for (const auto& node : nodes.nodes) {
    if (is_known) break;
    wire::append(definition, node.kernel->id());
    wire::append_text(definition, recipe_of(*node.kernel));
    wire::append_text(
        definition, {reinterpret_cast<const char*>(node.arguments.data()), node.arguments.size()});
  }
  std::optional<Command> command(Command(state, nodes.nodes, process));
  const auto header = header_here();
  const wire::NodesHeader of_nodes{nodes.graph, nodes.first,
                                   static_cast<std::uint32_t>(nodes.nodes.size())};
  command->nodes_ = {nodes.graph, nodes.first};
  command->request_.send(wire::kRunNodes,
                         std::array{bytes_of(header), bytes_of(of_nodes), bytes_of(definition)});
  return command;
}

void Executor::forget_graph(std::uint64_t graph) noexcept {
  if (!detail::g_executors.load(std::memory_order_relaxed)) return;
  for (int device = 0; device < settings().devices; ++device) {
    auto& state = *find(device).state_;
    const LockGuard lock(state.mutex);
    if (state.nodes.erase(graph) != 0 && state.process) state.process->forget(graph);
  }
}

Executor::Command::Command(State& state, const std::vector<NodeView>& commands,
                           std::shared_ptr<Process> process)
    : state_(&state), request_(std::move(process)) {
  for (const auto& command : commands) kernels_.push_back(command.kernel);
  if (!request_.channel()) return;
  const LockGuard lock(state.mutex);
  state.sent[*request_.channel()] = commands;
}

// What the process has, or cannot have.
void Executor::Command::note_kernels(bool in_process) {
  using Where = State::Where;
  const LockGuard lock(state_->mutex);
  for (const Kernel* const kernel : kernels_)
    state_->kernels.insert_or_assign(kernel->id(), in_process ? Where::kProcess : Where::kProgram);
  if (nodes_ && in_process) state_->nodes[nodes_->first].emplace(nodes_->second, kernels_.size());
}

bool Executor::Command::finish() {
  const auto answer = request_.answer();
  if (!answer) {
    const LockGuard lock(state_->mutex);
    throw Error("openreg: the device is lost: " + state_->why_ended);
  }
  if (answer->status == wire::kUnknownNodes) return false;  // each of them will be tried
  note_kernels(answer->status != wire::kUnknownKernel);
  if (answer->status == wire::kUnknownKernel) return false;
  const auto& callbacks = executor_callbacks();
  wire::Reader reader(answer->data);
  completed_ = reader.value<wire::AnswerHeader>().completed;
  const std::string message = reader.text();
  const std::string warnings = reader.text();
  if (!warnings.empty() && callbacks.warn) callbacks.warn(warnings);
  if (answer->status == wire::kDone) return true;
  if (callbacks.rethrow) callbacks.rethrow(answer->status - wire::kFailed, message);
  throw Error(message);
}

void install_executor_callbacks(const ExecutorCallbacks& callbacks) {
  installed_callbacks() = callbacks;
}
const ExecutorCallbacks& executor_callbacks() noexcept { return installed_callbacks(); }

}  // namespace openreg
