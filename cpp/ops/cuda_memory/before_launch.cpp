// Without computing: what only CUDA allocates, at each launch. See Note [What only CUDA allocates].
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/once.h"
#include "base/words.h"
#include "ops/cuda_memory/allocations.h"
#include "ops/cuda_memory/attention.h"
#include "ops/cuda_memory/foreach_norm.h"
#include "ops/cuda_memory/gpu.h"
#include "ops/launch/launch.h"

namespace openreg::ops::cuda_memory {

namespace {

constexpr std::size_t kMostEntries = 128;
std::array<std::atomic<std::uint64_t>, kMostEntries> g_calls;
std::array<std::atomic<std::uint64_t>, kMostEntries> g_bytes;
thread_local int t_quiet = 0;

bool names(std::string_view ops, std::string_view op) {
  constexpr std::string_view kNamespace = "aten::";
  if (!op.starts_with(kNamespace)) return false;
  op.remove_prefix(kNamespace.size());
  return any_word(ops, [op](std::string_view pattern) {
    return pattern.ends_with('*') ? op.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : op == pattern || op.substr(0, op.find('.')) == pattern;
  });
}

/// What is to be known of an operator.
struct Known {
  std::vector<std::size_t> entries;
  const c10::FunctionSchema* schema = nullptr;
};

Known find(std::string_view op) {
  Known known;
  const auto all = all_allocations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (names(all[i].ops, op)) known.entries.push_back(i);
  }
  if (known.entries.empty()) return known;
  const auto dot = op.find('.');
  const auto overload = dot == std::string_view::npos ? "" : std::string(op.substr(dot + 1));
  const auto handle =
      c10::Dispatcher::singleton().findSchema({std::string(op.substr(0, dot)), overload});
  if (handle) known.schema = &handle->schema();
  return known;
}

/// By the name's address, which is static.
const Known& known_of(const char* op) {
  thread_local std::unordered_map<const void*, Known> by_name;
  const auto known = by_name.find(op);
  return known != by_name.end() ? known->second : by_name.emplace(op, find(op)).first->second;
}

}  // namespace

namespace {

/// Allocates, and frees, what CUDA's kernel of this operator would use beside its results.
void before_launch(const OpKernel& kernel, std::span<const std::byte> command,
                   const ArgumentWriter& arguments, ValueFormat format, Stream& stream) {
  if (!is_reproduced() || t_quiet != 0) return;
  // Not when the library is loaded, because settings are not read then.
  static const Once once([] {
    register_attention();
    register_foreach_norm();
  });
  const auto& known = known_of(kernel.name());
  if (known.entries.empty()) return;
  // Other kernels have arguments of their own.
  const bool as_schema = arguments.tensor_count() != 0 && arguments.place_of(0).argument >= 0;
  const Call call(kernel.name(), as_schema ? known.schema : nullptr, command, format);
  for (const auto entry : known.entries) {
    const auto& allocation = all_allocations()[entry];
    g_calls[entry].fetch_add(1, std::memory_order_relaxed);
    if (allocation.allocate == nullptr) continue;
    Scratch scratch(stream);
    allocation.allocate(call, scratch);
    g_bytes[entry].fetch_add(scratch.total(), std::memory_order_relaxed);
  }
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
