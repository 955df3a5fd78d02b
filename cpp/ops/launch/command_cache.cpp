#include "ops/launch/command_cache.h"

#include <c10/util/ScopeExit.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/per_thread.h"
#include "ops/launch/op_kernel.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops {

namespace {

constexpr std::size_t kEntries = 128;
constexpr std::size_t kMostBytes = 1024;  // of a command
static_assert(kMostBytes / sizeof(StorageRecord) <= ArgumentReader::kMostStorages);

/// Whether the tensors are the same, but for the pointers of their storages.
bool are_alike(std::span<const std::byte> one, std::span<const std::byte> other) {
  if (one.size() != other.size() ||
      std::memcmp(one.data(), other.data(), sizeof(CommandHeader)) != 0)
    return false;
  const CommandView a(one);
  const CommandView b(other);
  const auto storages = a.header().storages;
  for (std::size_t i = 0; i < storages; ++i) {
    if (a.storages()[i].nbytes != b.storages()[i].nbytes) return false;
  }
  const auto begin = sizeof(CommandHeader) + storages * sizeof(StorageRecord);
  return std::memcmp(one.data() + begin, other.data() + begin, a.header().values_at - begin) == 0;
}

/// The values of a command, and the elements that it carries.
template <class Byte>
std::span<Byte> values_of(std::span<Byte> command) {
  return command.subspan(CommandView(command).header().values_at);
}

std::size_t slot_of(const OpKernel& kernel, std::span<const std::byte> command) {
  const auto signature = CommandView(command).header().signature;
  return (signature ^ reinterpret_cast<std::uintptr_t>(&kernel) / alignof(std::max_align_t)) %
         kEntries;
}

void run_and_keep(std::unique_ptr<CachedCommand>& cached, std::span<const std::byte> command) {
  auto own = std::move(cached);  // until it has computed, there is none: it may throw
  if (own->run(command)) cached = std::move(own);
}

}  // namespace

bool CommandCache::run(const OpKernel& kernel, std::span<const std::byte> command) {
  if (command.size() > kMostBytes) return false;
  auto* const own = per_thread<CommandCache>();
  // A kernel that runs commands of its own may not replace the entry that it is computed by.
  if (own == nullptr || own->in_use_) return false;
  own->in_use_ = true;
  const auto end = c10::make_scope_exit([own] { own->in_use_ = false; });
  return own->run_entry(kernel, command);
}

bool CommandCache::run_entry(const OpKernel& kernel, std::span<const std::byte> command) {
  if (entries_.empty()) entries_.resize(kEntries);
  auto& entry = entries_[slot_of(kernel, command)];
  const std::span<std::byte> last(entry.command);
  if (entry.kernel != &kernel || !are_alike(last, command)) {
    entry.kernel = nullptr;
    entry.computation = nullptr;
    entry.tried_computation = false;
    entry.tensors = nullptr;
    entry.command.assign(command.begin(), command.end());
    entry.kernel = &kernel;
    return false;
  }
  const auto values = values_of(command);
  const auto known = values_of(last);
  if (std::memcmp(values.data(), known.data(), values.size()) != 0) {
    entry.computation = nullptr;
    entry.tried_computation = false;
    std::memcpy(known.data(), values.data(), values.size());
  } else if (!std::exchange(entry.tried_computation, true)) {
    entry.computation = kernel.cache_computation(last);
  }
  if (entry.computation != nullptr) {
    run_and_keep(entry.computation, command);
  } else {
    if (entry.tensors == nullptr) entry.tensors = kernel.cache_tensors(last);
    run_and_keep(entry.tensors, command);
  }
  return true;
}

}  // namespace openreg::ops
