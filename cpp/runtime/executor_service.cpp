// An executor's side of runtime/executor.h.
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/executor.h"
#include "runtime/executor/executor_server.h"
#include "runtime/executor_wire.h"
#include "runtime/mutex.h"

namespace openreg {

namespace {

using wire::PartReader;
using wire::Reader;

const ExecutorCallbacks& callbacks() noexcept { return executor_callbacks(); }

const Kernel* find_or_make(std::uint64_t id, std::span<const std::byte> recipe) {
  if (const Kernel* const found = Kernel::find(id)) return found;
  Reader reader(recipe);
  const KernelMaker* const maker = KernelMaker::find(reader.text());
  if (!maker) return nullptr;
  const std::string name = reader.text();
  return maker->make(name, reader.text());
}

/// Consecutive nodes of a graph, prepared. Their runs do not overlap.
class PreparedNodes {
 public:
  /// Null: there is no such kernel.
  static std::shared_ptr<PreparedNodes> make(std::span<const std::byte> definition) {
    const auto made = std::make_shared<PreparedNodes>();
    for (Reader reader(definition); !reader.at_end();) {
      const auto id = reader.value<std::uint64_t>();
      const Kernel* const kernel = find_or_make(id, reader.bytes());
      if (!kernel) return nullptr;
      made->add(*kernel, reader.bytes());
    }
    return made;
  }

  void run(std::uint32_t& completed) {
    for (completed = 0; completed < nodes_.size(); ++completed) {
      executor::note_progress(completed);
      auto& node = nodes_[completed];
      if (!node.prepared)
        node.prepared = node.kernel->prepare({node.arguments.get()->bytes, node.bytes});
      node.prepared->run();
    }
  }

 private:
  struct alignas(16) Block {
    std::byte bytes[16];
  };
  struct Node {
    const Kernel* kernel;
    std::unique_ptr<Block[]> arguments;
    std::size_t bytes;
    std::unique_ptr<PreparedCommand> prepared;
  };

  void add(const Kernel& kernel, std::span<const std::byte> arguments) {
    auto blocks = std::make_unique<Block[]>(arguments.size() / sizeof(Block) + 1);
    if (!arguments.empty()) std::memcpy(blocks.get(), arguments.data(), arguments.size());
    nodes_.push_back({&kernel, std::move(blocks), arguments.size(), nullptr});
  }

  std::vector<Node> nodes_;
};

class GraphNodes {
 public:
  static GraphNodes& get() {
    static GraphNodes& nodes = *new GraphNodes;
    return nodes;
  }

  /// `definition` is empty if they are known. Null: they are not, or a kernel is missing.
  std::shared_ptr<PreparedNodes> find(const wire::NodesHeader& header,
                                      std::span<const std::byte> definition) {
    const std::pair key(header.first, header.count);
    if (!definition.empty()) {
      auto made = PreparedNodes::make(definition);
      if (!made) return nullptr;
      const LockGuard lock(mutex_);
      graphs_[header.graph].insert_or_assign(key, made);
      return made;
    }
    const LockGuard lock(mutex_);
    const auto& nodes = graphs_[header.graph];
    const auto found = nodes.find(key);
    return found == nodes.end() ? nullptr : found->second;
  }

  void forget(std::uint64_t graph) {
    const LockGuard lock(mutex_);
    graphs_.erase(graph);
  }

 private:
  using OfGraph = std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<PreparedNodes>>;

  Mutex mutex_;
  std::map<std::uint64_t, OfGraph> graphs_ OPENREG_GUARDED_BY(mutex_);
};

void use(const wire::Header& header) {
  if (callbacks().use_settings) callbacks().use_settings(header.settings);
  if (callbacks().use_threads) callbacks().use_threads(header.threads);
}

std::uint32_t run_command(PartReader& reader, const wire::Header& header) {
  const auto command = reader.value<wire::CommandHeader>();
  const Kernel* const kernel = find_or_make(command.kernel, reader.part(command.recipe_bytes));
  if (!kernel) return wire::kUnknownKernel;
  use(header);
  if (command.crashes) std::raise(SIGSEGV);
  kernel->run(reader.rest());
  return wire::kDone;
}

std::uint32_t run_nodes(PartReader& reader, const wire::Header& header, std::uint32_t& completed) {
  const auto nodes = reader.value<wire::NodesHeader>();
  const auto prepared = GraphNodes::get().find(nodes, reader.rest());
  if (!prepared) return wire::kUnknownNodes;
  use(header);
  prepared->run(completed);
  return wire::kDone;
}

std::uint32_t handle(std::uint32_t operation, std::span<const std::byte> request,
                     std::string& data) noexcept {
  std::uint32_t status = wire::kDone;
  std::uint32_t completed = 0;
  std::string message;
  try {
    PartReader reader(request);
    const auto header = reader.value<wire::Header>();
    status = operation == wire::kRunNodes ? run_nodes(reader, header, completed)
                                          : run_command(reader, header);
  } catch (...) {
    message = describe(std::current_exception());
    status = wire::kFailed;
    if (callbacks().classify) status += callbacks().classify(std::current_exception());
  }
  const std::string warnings = callbacks().take_warnings ? callbacks().take_warnings() : "";
  if (status < wire::kFailed && warnings.empty()) return status;
  wire::append(data, wire::AnswerHeader{completed});
  wire::append_text(data, message);
  wire::append_text(data, warnings);
  return status;
}

}  // namespace

void serve_executor(int socket) {
  static const executor::Service service{
      .begin = callbacks().begin,
      .begin_thread = callbacks().begin_thread,
      .handle = &handle,
      .forget = [](std::uint64_t graph) { GraphNodes::get().forget(graph); }};
  executor::serve(socket, service);
}

}  // namespace openreg
