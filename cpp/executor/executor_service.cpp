// An executor's side of executor/executor.h.
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "executor/executor.h"
#include "executor/executor_server.h"
#include "executor/wire.h"

namespace openreg {

namespace {

using wire::PartReader;
using wire::Reader;

const ExecutorCallbacks& callbacks() noexcept { return executor_callbacks(); }

const Kernel* find_or_make(std::uint64_t id, std::span<const std::byte> recipe) {
  if (const Kernel* const found = Kernel::find(id)) return found;
  Reader reader(recipe);
  const KernelFactory* const factory = KernelFactory::find(reader.text());
  if (!factory) return nullptr;
  const std::string name = reader.text();
  return factory->make(name, reader.text());
}

// A kernel is missing: the number of its command in the request.
struct Unknown {
  std::uint32_t command;
};

/// Consecutive nodes of a graph, prepared. Their runs do not overlap.
class PreparedNodes {
 public:
  /// Throws Unknown; `first` is the number of the first node in the request.
  PreparedNodes(std::span<const std::byte> definition, std::uint32_t first) {
    for (Reader reader(definition); !reader.at_end();) {
      const auto id = reader.value<std::uint64_t>();
      const Kernel* const kernel = find_or_make(id, reader.bytes());
      if (!kernel) throw Unknown{first + static_cast<std::uint32_t>(nodes_.size())};
      add(*kernel, reader.bytes());
    }
  }

  /// Counts those that have run.
  void run(std::uint32_t& completed) {
    for (auto& node : nodes_) {
      executor::note_progress(completed);
      if (!node.prepared)
        node.prepared = node.kernel->prepare({node.arguments[0].bytes, node.bytes});
      node.prepared->run();
      ++completed;
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

  void define(const wire::ItemHeader& item, const std::shared_ptr<PreparedNodes>& nodes) {
    const LockGuard lock(mutex_);
    graphs_[item.number].insert_or_assign({item.first, item.nodes}, nodes);
  }
  /// Null: they are not defined.
  std::shared_ptr<PreparedNodes> find(const wire::ItemHeader& item) const {
    const LockGuard lock(mutex_);
    const auto graph = graphs_.find(item.number);
    if (graph == graphs_.end()) return nullptr;
    const auto found = graph->second.find({item.first, item.nodes});
    return found == graph->second.end() ? nullptr : found->second;
  }

  void forget(std::uint64_t graph) {
    const LockGuard lock(mutex_);
    graphs_.erase(graph);
  }

 private:
  using OfGraph = std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<PreparedNodes>>;

  mutable Mutex mutex_;
  std::map<std::uint64_t, OfGraph> graphs_ OPENREG_GUARDED_BY(mutex_);
};

void use(const wire::Header& header) {
  if (callbacks().use_settings) callbacks().use_settings(header.settings);
  if (callbacks().use_threads) callbacks().use_threads(header.threads);
}

void run_single(const wire::ItemHeader& item, std::span<const std::byte> recipe,
                std::span<const std::byte> arguments, std::uint32_t& completed) {
  const Kernel* const kernel = find_or_make(item.number, recipe);
  if (!kernel) throw Unknown{completed};
  if (item.crashes) std::raise(SIGSEGV);
  kernel->run(arguments);
  ++completed;
}

// False: the process does not have them.
bool run_nodes(const wire::ItemHeader& item, std::span<const std::byte> definition,
               std::uint32_t& completed) {
  std::shared_ptr<PreparedNodes> nodes;
  if (definition.empty()) {
    nodes = GraphNodes::get().find(item);
  } else {
    nodes = std::make_shared<PreparedNodes>(definition, completed);
    GraphNodes::get().define(item, nodes);
  }
  if (nodes) nodes->run(completed);
  return nodes != nullptr;
}

std::uint32_t run_items(std::span<const std::byte> request, std::uint32_t& completed) {
  PartReader reader(request);
  const auto header = reader.value<wire::Header>();
  use(header);
  for (std::uint32_t i = 0; i < header.items; ++i) {
    const auto item = reader.value<wire::ItemHeader>();
    const auto definition = reader.part(item.definition_bytes);
    const auto arguments = reader.part(item.argument_bytes);
    executor::note_progress(completed);
    if (item.nodes == 0) {
      run_single(item, definition, arguments, completed);
    } else if (!run_nodes(item, definition, completed)) {
      return wire::kUnknownNodes;
    }
  }
  return wire::kDone;
}

std::uint32_t handle(std::span<const std::byte> request, std::string& data) noexcept {
  std::uint32_t status = wire::kDone;
  wire::AnswerHeader header{};
  std::string message;
  try {
    status = run_items(request, header.completed);
  } catch (const Unknown& unknown) {
    status = wire::kUnknownKernel;
    header.unknown = unknown.command;
  } catch (...) {
    message = describe(std::current_exception());
    status = wire::kFailed;
    if (callbacks().classify) status += callbacks().classify(std::current_exception());
  }
  const std::string warnings = callbacks().take_warnings ? callbacks().take_warnings() : "";
  if (status == wire::kDone && warnings.empty()) return status;
  wire::append(data, header);
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
