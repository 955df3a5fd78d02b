#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/launch_site.h"

namespace openreg {

class Kernel;

/// Where the memory lies that a copy reads or writes.
enum class MemoryKind : std::uint8_t { kDevice, kOtherDevice, kPinned, kPageable };

/// Describes a command in a trace, beyond its name.
struct CommandSummary {
  enum class Kind : std::uint8_t { kKernel, kCopy, kFill };

  Kind kind = Kind::kKernel;
  MemoryKind from = MemoryKind::kDevice;  ///< source of a copy
  MemoryKind to = MemoryKind::kDevice;    ///< destination of a copy
  std::uint64_t bytes = 0;                ///< number of bytes copied or filled
};

/// A command that runs many times with the same arguments (in a captured graph). It holds what can
/// be decided once for all runs. Used by one thread at a time.
class PreparedCommand {
 public:
  virtual ~PreparedCommand() = default;
  /// Throws to fail the command.
  virtual void run() = 0;
};

/// Makes a kernel in an executor (executor.h) that has not had it since its library was loaded.
/// Objects are static: they live as long as the process. `name` is unique.
class KernelFactory {
 public:
  /// Called in the program: returns what make() needs. No value: the kernel exists in the program
  /// only.
  using Describe = std::optional<std::string> (*)(const Kernel& kernel);
  /// Called in the executor: returns the kernel of this name; null if it cannot be made.
  using Make = const Kernel* (*)(const std::string& name, const std::string& description);

  KernelFactory(const char* name, Describe describe, Make make);
  KernelFactory(const KernelFactory&) = delete;
  KernelFactory& operator=(const KernelFactory&) = delete;

  const char* name() const noexcept { return name_; }
  std::optional<std::string> describe(const Kernel& kernel) const { return describe_(kernel); }
  const Kernel* make(const std::string& name, const std::string& description) const {
    return make_(name, description);
  }

  static const KernelFactory* find(std::string_view name) noexcept;

 private:
  const char* name_;
  Describe describe_;
  Make make_;
};

/// The kinds of engines. Each engine runs only the commands of its kind, so a long copy and a
/// kernel on two streams run at the same time even if there is only one engine of each kind.
enum class EngineKind : std::uint8_t { kCompute, kCopy };

struct KernelTraits {
  EngineKind engine = EngineKind::kCompute;
  /// The command may wait for something outside the device (Python, a host function); process exit
  /// does not wait for it.
  bool may_block = false;
  /// The command takes microseconds and waits for nothing: the thread that makes it ready runs it,
  /// as it runs the records and waits of events (runtime/brief_run.h).
  bool brief = false;
  /// Each command runs only once: it owns something, or stands for an action outside the device. So
  /// it cannot be captured.
  bool once = false;
  /// The command needs nothing of this process but the device's memory, so it runs in the device's
  /// executor if there is one (executor.h).
  bool in_executor = false;
  /// Makes the kernel in the executor. Null: the executor has it.
  const KernelFactory* factory = nullptr;
  /// Called instead of the kernel if the stream skips the command because an earlier one failed.
  /// Null: nothing is called. For commands that own something, or that others wait for. Must not
  /// throw.
  void (*skip)(std::span<const std::byte> arguments) noexcept = nullptr;
  /// Prepares a command. Its arguments stay in place for the lifetime of the returned object, which
  /// must not be null. Called on a thread that runs commands; throws to fail the command. Null:
  /// each run calls the kernel.
  std::unique_ptr<PreparedCommand> (*prepare)(const Kernel& kernel,
                                              std::span<const std::byte> arguments) = nullptr;
  /// Describes such a command in a trace (trace.h). Null: it is shown as a kernel.
  CommandSummary (*summarize)(std::span<const std::byte> arguments) noexcept = nullptr;
};

/// The function that a command runs. Static: one object per kernel, which lives as long as the
/// process; its constructor registers it. `name` is the operator's name, in errors and traces, and
/// unique. `id` is derived from it, so it is the same in every process: an executor finds the
/// kernel by it.
class Kernel {
 public:
  /// Runs on the thread that owns the stream, with the kernel itself and the command's arguments;
  /// throws to fail the command.
  using Run = void (*)(const Kernel& kernel, std::span<const std::byte> arguments);

  /// Without `run` it has no code: its commands can be submitted and not run. Throws Error if
  /// another kernel has the name or its id.
  Kernel(const char* name, Run run, KernelTraits traits = {});
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const char* name() const noexcept { return name_; }
  std::uint64_t id() const noexcept { return id_; }
  void run(std::span<const std::byte> arguments) const { run_(*this, arguments); }
  bool has_code() const noexcept { return run_ != nullptr; }
  const KernelTraits& traits() const noexcept { return traits_; }
  /// Whether commands run in the device's executor, if there is one. It may turn out later that
  /// executors do not have the kernel.
  bool runs_in_executor() const noexcept {
    return traits_.in_executor && !is_in_program_.load(std::memory_order_relaxed);
  }
  void note_missing_in_executor() const noexcept {
    is_in_program_.store(true, std::memory_order_relaxed);
  }
  /// Never null.
  std::unique_ptr<PreparedCommand> prepare(std::span<const std::byte> arguments) const;
  CommandSummary summary(std::span<const std::byte> arguments) const noexcept;

  /// The registered kernel with this id, or nullptr.
  static const Kernel* find(std::uint64_t id) noexcept;

 protected:
  struct StandsFor {
    const Kernel& kernel;
  };
  /// A kernel that stands for another one, and has its name and id. It is not registered.
  Kernel(StandsFor other, Run run, KernelTraits traits)
      : name_(other.kernel.name_), run_(run), id_(other.kernel.id_), traits_(traits) {}

 private:
  const char* name_;
  Run run_;
  std::uint64_t id_;
  KernelTraits traits_;
  mutable std::atomic<bool> is_in_program_{false};
};

/// What a command is expected to cost the thread that runs it.
struct Cost {
  static constexpr std::uint32_t kMost = (1U << 31) - 1;
  /// Starting a team takes a tenth of this time.
  static constexpr std::uint32_t kLong = 1'000'000;

  bool is_long() const noexcept { return nanoseconds >= kLong; }
  /// Adds the time of another command.
  void add(Cost other) noexcept {
    nanoseconds = std::min(kMost, std::uint32_t{nanoseconds} + other.nanoseconds);
  }

  /// Expected time of one thread, at most kMost. 0: negligible.
  std::uint32_t nanoseconds : 31 = 0;
  /// The results depend on the number of threads and must be the same in every run, so that number
  /// must not depend on which thread runs the command.
  bool reproducible : 1 = false;
};

/// A command, whose arguments live elsewhere. With `crashes` the executor ends when it begins.
struct Command {
  const Kernel* kernel;
  std::span<const std::byte> arguments;
  LaunchSite site;
  bool crashes = false;
};

}  // namespace openreg
