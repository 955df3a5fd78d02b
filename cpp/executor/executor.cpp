#include "executor/executor.h"

#include <cxxabi.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "base/counters.h"
#include "base/device_error.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "executor/wire.h"
#include "runtime/callbacks.h"
#include "runtime/device_health.h"

namespace openreg {

// Note [Executors]
//
// The seam is where a run slice would call a kernel (RunSlice::step(), remote_run.cpp): the bytes
// of the command go to a thread of the device's process, and the thread of the program sleeps until
// the answer. So everything that orders work, traces it, checks it or injects faults is as without
// executors, and only what a kernel does happens elsewhere. Handing a command over takes longer
// than most commands, so one request has all short ones that are queued (Executor::Batch): while
// the process runs some, the program queues the next.
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
// it (KernelFactory); if that is not possible, it runs in the program. Settings that kernels read
// travel with each request.

namespace {

ExecutorCallbacks& installed_callbacks() noexcept {
  static ExecutorCallbacks installed;
  return installed;
}

// How the process makes the kernel; empty: it has it, or cannot have it.
std::string serialize(const Kernel& kernel) {
  const KernelFactory* const factory = kernel.traits().factory;
  if (!factory) return {};
  const auto description = factory->describe(kernel);
  if (!description) return {};
  std::string serialized;
  wire::append_text(serialized, factory->name());
  wire::append_text(serialized, kernel.name());
  wire::append_text(serialized, *description);
  return serialized;
}

wire::Header header_here() {
  const auto& callbacks = executor_callbacks();
  wire::Header header{};
  if (callbacks.settings) header.settings = callbacks.settings();
  if (callbacks.threads) header.threads = callbacks.threads();
  return header;
}

// How the process makes nodes of a graph.
std::string definition_of(std::span<const Command> nodes) {
  std::string definition;
  for (const auto& node : nodes) {
    wire::append(definition, node.kernel->id());
    wire::append_text(definition, serialize(*node.kernel));
    wire::append_text(
        definition, {reinterpret_cast<const char*>(node.arguments.data()), node.arguments.size()});
  }
  return definition;
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
  explicit State(int device) : device(device) {}

  std::string describe(const executor::ExecutorProcess::End& end) OPENREG_REQUIRES(mutex);
  void note_end(const executor::ExecutorProcess::End& end) OPENREG_EXCLUDES(mutex);

  const int device;
  Mutex starting;  // held while a process starts or is being ended
  mutable Mutex mutex;
  std::shared_ptr<Process> process OPENREG_GUARDED_BY(mutex);
  bool is_being_ended OPENREG_GUARDED_BY(mutex) = false;
  std::string why_ended OPENREG_GUARDED_BY(mutex);
  // The kernels that the process has, as far as it is known.
  std::unordered_set<const Kernel*> kernels OPENREG_GUARDED_BY(mutex);
  // The nodes that the process has, by graph: the first, and how many.
  std::map<std::uint64_t, std::set<std::pair<std::uint32_t, std::uint32_t>>> nodes
      OPENREG_GUARDED_BY(mutex);
  // The newest request of each channel.
  std::array<std::shared_ptr<const Batch>, executor::SharedBlock::kChannels> sent
      OPENREG_GUARDED_BY(mutex);
};

bool Executor::Batch::add(const Command& command, Cost cost) {
  const bool alone = cost.is_long() || cost.reproducible;
  if (!empty() && (alone || cost_.reproducible || cost_.is_long() || commands_.size() >= most_))
    return false;
  commands_.push_back(command);
  items_.emplace_back();
  cost_.add(cost);
  cost_.reproducible |= cost.reproducible;
  return true;
}

void Executor::Batch::join_nodes(std::uint32_t commands, std::uint64_t graph, std::uint32_t first) {
  items_.resize(items_.size() - commands);
  items_.push_back({graph, first, commands});
}

void Executor::Batch::remove(std::size_t commands, Cost cost) {
  items_.resize(items_.size() - commands);
  commands_.resize(commands_.size() - commands);
  cost_ = cost;
}

Executor::Executor(int device) : state_(new State(device)) {}

RemoteRunner& Executor::find(int device) {
  static auto& executors = *[] {
    auto* const made = new std::vector<Executor>;
    for (int i = 0; i < settings().devices; ++i) made->push_back(Executor(i));
    return made;
  }();
  return executors[static_cast<std::size_t>(device)];
}

std::string Executor::State::describe(const executor::ExecutorProcess::End& end) {
  if (!end.channel) return end.what;
  if (!sent[*end.channel]) return end.what;
  const auto& commands = sent[*end.channel]->commands();
  const auto& of = commands[std::min<std::size_t>(end.progress, commands.size() - 1)];
  return end.what + " while running " + of.kernel->name() + launched_by(of.site);
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
    state.kernels.clear();
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

Executor::PendingBatch Executor::send(std::shared_ptr<const Batch> batch) {
  PendingBatch sent(*state_, std::move(batch), running());
  sent.send();
  return sent;
}

void Executor::forget_graph(std::uint64_t graph) noexcept {
  const LockGuard lock(state_->mutex);
  if (state_->nodes.erase(graph) != 0 && state_->process) state_->process->forget(graph);
}

Executor::PendingBatch::PendingBatch(State& state, std::shared_ptr<const Batch> batch,
                                     std::shared_ptr<Process> process)
    : state_(&state),
      process_(process.get()),
      batch_(std::move(batch)),
      is_new_(batch_->items().size()),
      request_(std::move(process)) {
  const LockGuard lock(state.mutex);
  if (request_.channel()) state.sent[*request_.channel()] = batch_;
  const Command* command = batch_->commands().data();
  std::set<const Kernel*> kernels;  // that an earlier item brings
  std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> nodes;
  for (std::size_t i = 0; i < is_new_.size(); ++i) {
    const auto& [graph, first, count] = batch_->items()[i];
    is_new_[i] = graph == 0 ? !state.kernels.contains(command->kernel) &&
                                  kernels.insert(command->kernel).second
                            : !state.nodes[graph].contains({first, count}) &&
                                  nodes.emplace(graph, first, count).second;
    command += count;
  }
}

void Executor::PendingBatch::send() {
  auto header = header_here();
  header.items = static_cast<std::uint32_t>(is_new_.size());
  std::vector<wire::ItemHeader> headers(is_new_.size());
  std::vector<std::string> definitions(is_new_.size());
  std::vector<std::span<const std::byte>> parts{bytes_of(header)};
  std::span<const Command> commands = batch_->commands();
  for (std::size_t i = 0; i < is_new_.size(); ++i) {
    const auto& [graph, first, count] = batch_->items()[i];
    const auto& command = commands.front();
    std::span<const std::byte> arguments;
    if (graph == 0) {
      if (is_new_[i]) definitions[i] = serialize(*command.kernel);
      arguments = command.arguments;
    } else if (is_new_[i]) {
      definitions[i] = definition_of(commands.first(count));
    }
    headers[i] = {.number = graph == 0 ? command.kernel->id() : graph,
                  .first = first,
                  .nodes = graph == 0 ? 0 : count,
                  .definition_bytes = static_cast<std::uint32_t>(definitions[i].size()),
                  .argument_bytes = static_cast<std::uint32_t>(arguments.size()),
                  .crashes = command.crashes};
    for (const auto part : {bytes_of(headers[i]), bytes_of(definitions[i]), arguments})
      parts.push_back(part);
    commands = commands.subspan(count);
  }
  request_.send(parts);
  counters::requests.add();
}

// What the process has now, or cannot have.
void Executor::PendingBatch::note_end(std::uint32_t status, const wire::AnswerHeader& answer) {
  const std::span<const Command> commands = batch_->commands();
  if (status == wire::kUnknownKernel) commands[answer.unknown].kernel->note_missing_in_executor();
  const LockGuard lock(state_->mutex);
  if (state_->process.get() != process_) return;  // that is another one
  std::size_t end = 0;
  for (std::size_t i = 0; i < is_new_.size(); ++i) {
    const auto& [graph, first, count] = batch_->items()[i];
    const auto begin = std::exchange(end, end + count);
    if (status == wire::kUnknownNodes && begin == answer.completed)
      state_->nodes[graph].erase({first, count});
    const bool has_begun =
        status >= wire::kFailed ? begin <= answer.completed : end <= answer.completed;
    if (!has_begun || !is_new_[i]) continue;
    for (const auto& command : commands.subspan(begin, count))
      state_->kernels.insert(command.kernel);
    if (graph != 0) state_->nodes[graph].emplace(first, count);
  }
}

Executor::PendingBatch::End Executor::PendingBatch::end() {
  const auto answer = request_.answer();
  const auto all = static_cast<std::uint32_t>(batch_->commands().size());
  if (!answer) {
    const LockGuard lock(state_->mutex);
    return {std::min(request_.progress(), all - 1),
            std::make_exception_ptr(
                DeviceError("openreg: the device is lost: " + state_->why_ended, Health::kLost))};
  }
  wire::AnswerHeader header{.completed = all, .unknown = 0};
  wire::Reader reader(answer->data);
  if (!reader.at_end()) header = reader.value<wire::AnswerHeader>();
  const auto& callbacks = executor_callbacks();
  try {
    note_end(answer->status, header);
    const std::string message = reader.text();
    const std::string warnings = reader.text();
    if (!warnings.empty() && callbacks.warn) callbacks.warn(warnings);
    if (answer->status >= wire::kFailed) {
      if (callbacks.rethrow) callbacks.rethrow(answer->status - wire::kFailed, message);
      throw Error(message);
    }
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return {std::min(header.completed, all - 1), std::current_exception()};
  }
  return {header.completed, nullptr};
}

void install_executor_callbacks(const ExecutorCallbacks& callbacks) {
  installed_callbacks() = callbacks;
  install_callbacks({.find_remote_runner = &Executor::find});
}
const ExecutorCallbacks& executor_callbacks() noexcept { return installed_callbacks(); }

}  // namespace openreg
