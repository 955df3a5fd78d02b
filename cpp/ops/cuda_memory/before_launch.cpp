// Without computing: what only CUDA allocates, at each launch. See Note [What only CUDA allocates].
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/once.h"
#include "ops/cuda_memory/allocations.h"
#include "ops/cuda_memory/blas_workspaces.h"
#include "ops/cuda_memory/foreach_norm.h"
#include "ops/cuda_memory/gpu.h"
#include "ops/launch/launch.h"
#include "ops/launch/operator_names.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops::cuda_memory {

namespace {

constexpr std::size_t kMostEntries = 128;
std::array<std::atomic<std::uint64_t>, kMostEntries> g_calls;
std::array<std::atomic<std::uint64_t>, kMostEntries> g_bytes;
thread_local int t_quiet = 0;

/// What is to be known of an operator.
struct Known {
  std::vector<std::size_t> entries;
  bool allocates = false;          // as far as is known
  bool depends_on_command = true;  // only; what is not known is noted at each launch
  const c10::FunctionSchema* schema = nullptr;
};

Known find(const char* op) {
  const std::string_view name = op;
  const auto without_overload = name.substr(0, name.find('.'));
  Known known;
  const auto all = all_allocations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (names_operator(all[i].ops, name) || names_operator(all[i].ops, without_overload))
      known.entries.push_back(i);
  }
  for (const auto i : known.entries) {
    if (all[i].allocate == nullptr) continue;
    known.allocates = true;
    if (all[i].certainty == Certainty::kUnknown) known.depends_on_command = false;
  }
  if (!known.entries.empty()) known.schema = find_schema(operator_name(name));
  return known;
}

/// A hash of all that the allocations of a command depend on: the GPU, and everything but where its
/// memory lies.
std::uint64_t hash_of(const char* op, std::span<const std::byte> command) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  const CommandView view(command);
  auto hash = reinterpret_cast<std::uintptr_t>(op);
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  };
  const auto of = gpu();
  add(static_cast<std::uint64_t>(of.capability()) << 48 |
      static_cast<std::uint64_t>(of.multiprocessors) << 24 |
      static_cast<std::uint64_t>(of.threads_per_multiprocessor));
  for (std::uint32_t i = 0; i < view.header().storages; ++i)
    add(view.storages()[i].pointer % 256);  // its alignment
  const auto* at = reinterpret_cast<const std::byte*>(view.tensors().data());
  auto left = static_cast<std::size_t>(command.data() + command.size() - at);
  std::uint64_t word = 0;
  for (; left >= sizeof word; left -= sizeof word, at += sizeof word) {
    std::memcpy(&word, at, sizeof word);
    add(word);
  }
  word = 0;
  std::memcpy(&word, at, left);
  add(word);
  return hash;
}

/// Most operators allocate nothing, or cuBLAS's workspace. Finding that out can take more than the
/// launch, so it is remembered for the commands of late.
class SimpleCommands {
 public:
  enum class Uses : std::uint8_t { kUnknown, kNothing, kBlasWorkspace };

  Uses find(std::uint64_t hash) const {
    const auto& entry = entries_[hash % entries_.size()];
    return entry.hash == hash ? entry.uses : Uses::kUnknown;
  }
  void put(std::uint64_t hash, Uses uses) { entries_[hash % entries_.size()] = {hash, uses}; }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    Uses uses = Uses::kUnknown;
  };
  std::array<Entry, 1024> entries_{};
};

/// Allocates, and frees, what CUDA's kernel of this operator would use beside its results.
void before_launch(const OpKernel& kernel, std::span<const std::byte> command,
                   const ArgumentWriter& arguments, ValueFormat format, Stream& stream) {
  if (!is_reproduced() || t_quiet != 0) return;
  // Not when the library is loaded, because settings are not read then.
  static const Once once([] { register_foreach_norm(); });
  thread_local ByOperator<Known> by_operator;
  const auto& known = by_operator.get(kernel.name(), find);
  for (const auto entry : known.entries) g_calls[entry].fetch_add(1, std::memory_order_relaxed);
  if (!known.allocates) return;

  using Uses = SimpleCommands::Uses;
  thread_local SimpleCommands simple;
  const auto hash = known.depends_on_command ? hash_of(kernel.name(), command) : 0;
  switch (simple.find(hash)) {
    case Uses::kNothing:
      return;
    case Uses::kBlasWorkspace:
      return use_blas_workspace(stream);
    case Uses::kUnknown:
      break;
  }
  // Other kernels have arguments of their own.
  const bool as_schema = arguments.tensor_count() != 0 && arguments.place_of(0).argument >= 0;
  const Call call(kernel.name(), as_schema ? known.schema : nullptr, command, format);
  auto uses = Uses::kNothing;
  for (const auto entry : known.entries) {
    const auto& allocation = all_allocations()[entry];
    if (allocation.allocate == nullptr) continue;
    Scratch scratch(stream);
    allocation.allocate(call, scratch);
    g_bytes[entry].fetch_add(scratch.total(), std::memory_order_relaxed);
    if (scratch.total() != 0) uses = Uses::kUnknown;
    if (scratch.uses_blas_workspace() && uses == Uses::kNothing) uses = Uses::kBlasWorkspace;
  }
  if (known.depends_on_command) simple.put(hash, uses);
}

[[maybe_unused]] const bool kIsSet = [] {
  set_launch_hook(&before_launch);
  return true;
}();

}  // namespace

Quiet::Quiet() noexcept { ++t_quiet; }
Quiet::~Quiet() { --t_quiet; }

AllocationUse use_of(std::size_t allocation) {
  return {g_calls[allocation].load(std::memory_order_relaxed),
          g_bytes[allocation].load(std::memory_order_relaxed)};
}

}  // namespace openreg::ops::cuda_memory
