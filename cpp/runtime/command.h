#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace openreg {

class Kernel;
struct CommandSummary;

/// A command that runs many times with the same arguments (a captured graph's), with what can be
/// decided once for all runs. Used by one thread at a time.
class PreparedCommand {
 public:
  virtual ~PreparedCommand() = default;
  /// Throws to fail the command.
  virtual void run() = 0;
};

/// The kinds of engines. Each runs the commands of its own kind only, so a long copy and a kernel
/// on two streams happen at the same time even where one engine of a kind is all there is.
enum class EngineKind : std::uint8_t { kCompute, kCopy };

struct KernelTraits {
  EngineKind engine = EngineKind::kCompute;
  /// The command may wait for something outside of the device (Python, a host function); process
  /// exit does not wait for its end.
  bool may_block = false;
  /// The command takes microseconds and waits for nothing: the thread that makes it ready runs it,
  /// as it does events' records and waits (runtime/brief_run.h).
  bool brief = false;
  /// Each command runs once only: it owns something, or stands for something that happens outside
  /// of the device. So it cannot be captured.
  bool once = false;
  /// Called instead of the kernel if the stream skips the command since an earlier one failed;
  /// null: nothing is. For commands that own something, or that others wait for. Must not throw.
  void (*skip)(std::span<const std::byte> arguments) noexcept = nullptr;
  /// Throws Error if these bytes cannot be the kernel's arguments; null: all can. Asked of commands
  /// that come from elsewhere (decode()).
  void (*check)(std::span<const std::byte> arguments) = nullptr;
  /// Prepares a command; its arguments stay where they are as long as what is returned. Called on a
  /// thread that runs commands. Null: each run is a call of the kernel.
  std::unique_ptr<PreparedCommand> (*prepare)(const Kernel& kernel,
                                              std::span<const std::byte> arguments) = nullptr;
  /// What a trace says of such a command (runtime/trace.h); null: that it is a kernel.
  CommandSummary (*summarize)(std::span<const std::byte> arguments) noexcept = nullptr;
};

/// What a command runs. Static: one object per kernel, alive as long as the process; registered by
/// its constructor. `name` is the operator's name, in errors and traces, and unique. `id` is
/// derived from it, so it is the same in every process: a command can be encoded here and decoded
/// elsewhere.
class Kernel {
 public:
  /// Runs on the thread that owns the stream, with the kernel itself and the command's arguments;
  /// throws to fail the command.
  using Run = void (*)(const Kernel& kernel, std::span<const std::byte> arguments);

  Kernel(const char* name, Run run, KernelTraits traits = {});
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const char* name() const noexcept { return name_; }
  std::uint64_t id() const noexcept { return id_; }
  void run(std::span<const std::byte> arguments) const { run_(*this, arguments); }
  const KernelTraits& traits() const noexcept { return traits_; }
  /// Never null.
  std::unique_ptr<PreparedCommand> prepare(std::span<const std::byte> arguments) const;
  CommandSummary summary(std::span<const std::byte> arguments) const noexcept;

  /// The registered kernel with this id, or nullptr.
  static const Kernel* find(std::uint64_t id) noexcept;

 private:
  const char* name_;
  Run run_;
  std::uint64_t id_;
  KernelTraits traits_;
};

/// What a command asks of the thread that runs it.
struct Work {
  static constexpr std::uint32_t kMost = (1U << 31) - 1;
  /// A team's start is a tenth of it.
  static constexpr std::uint32_t kLong = 1'000'000;

  bool is_long() const noexcept { return nanoseconds >= kLong; }
  /// As if one command did the other's work too.
  void add(Work other) noexcept {
    nanoseconds = std::min(kMost, std::uint32_t{nanoseconds} + other.nanoseconds);
  }

  /// What one thread is expected to take, at most kMost. 0: next to nothing.
  std::uint32_t nanoseconds : 31 = 0;
  /// The results depend on the number of threads, and are to be the same in every run: then that
  /// number does not depend on who runs the command.
  bool reproducible : 1 = false;
};

/// The calling thread is running a command.
bool in_command() noexcept;

/// A command outside of a queue: a kernel and its arguments. Arguments are flat bytes (copied with
/// memcpy, aligned to 16 in the queue) that hold device pointers, sizes and values, and no host
/// pointers but pinned ones.
struct Command {
  const Kernel* kernel = nullptr;
  std::vector<std::byte> arguments;
};

std::vector<std::byte> encode(const Kernel& kernel, std::span<const std::byte> arguments);
/// Throws Error on bytes that are no command, that name a kernel this process does not have, or
/// that the kernel cannot read.
Command decode(std::span<const std::byte> bytes);

}  // namespace openreg
