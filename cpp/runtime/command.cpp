#include "runtime/command.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"

namespace openreg {

namespace {

// FNV-1a: the same in every process and on every machine.
std::uint64_t hash(std::string_view text) noexcept {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char character : text) {
    value = (value ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  }
  return value;
}

class Registry {
 public:
  // Never destroyed: kernels are looked up until the process ends.
  static Registry& get() {
    static Registry& registry = *new Registry;
    return registry;
  }

  void add(const Kernel& kernel) {
    const LockGuard lock(mutex_);
    const auto [entry, added] = kernels_.emplace(kernel.id(), &kernel);
    if (!added) {
      throw Error("openreg: kernel names must be unique and have unique hashes (got \"" +
                  std::string(kernel.name()) + "\" beside \"" + entry->second->name() + "\")");
    }
  }

  const Kernel* find(std::uint64_t id) noexcept {
    const LockGuard lock(mutex_);
    const auto entry = kernels_.find(id);
    return entry == kernels_.end() ? nullptr : entry->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<std::uint64_t, const Kernel*> kernels_ OPENREG_GUARDED_BY(mutex_);
};

std::vector<const KernelFactory*>& factories() {
  static auto& all = *new std::vector<const KernelFactory*>;
  return all;
}

/// For a kernel that has nothing to prepare.
class RepeatedCall final : public PreparedCommand {
 public:
  RepeatedCall(const Kernel& kernel, std::span<const std::byte> arguments)
      : kernel_(kernel), arguments_(arguments) {}
  void run() override { kernel_.run(arguments_); }

 private:
  const Kernel& kernel_;
  const std::span<const std::byte> arguments_;
};

}  // namespace

// Only while libraries are loaded, by one thread.
KernelFactory::KernelFactory(const char* name, Describe describe, Make make)
    : name_(name), describe_(describe), make_(make) {
  factories().push_back(this);
}

const KernelFactory* KernelFactory::find(std::string_view name) noexcept {
  for (const KernelFactory* const factory : factories()) {
    if (name == factory->name()) return factory;
  }
  return nullptr;
}

Kernel::Kernel(const char* name, Run run, KernelTraits traits)
    : name_(name), run_(run), id_(hash(name)), traits_(traits) {
  Registry::get().add(*this);
}

std::unique_ptr<PreparedCommand> Kernel::prepare(std::span<const std::byte> arguments) const {
  if (traits_.prepare) return traits_.prepare(*this, arguments);
  return std::make_unique<RepeatedCall>(*this, arguments);
}

CommandSummary Kernel::summary(std::span<const std::byte> arguments) const noexcept {
  return traits_.summarize ? traits_.summarize(arguments) : CommandSummary{};
}

const Kernel* Kernel::find(std::uint64_t id) noexcept { return Registry::get().find(id); }

}  // namespace openreg
