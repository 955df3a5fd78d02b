#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <span>

#include "ops/launch/command_cache.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"
#include "runtime/command.h"

namespace openreg::ops {

class OpKernel;

/// What differs from calling a body with tensors of the command's dtypes.
struct BodyTraits {
  /// Computes on the command's memory, without making tensors. False: not with these arguments.
  using RawKernel = bool (*)(const OpKernel& kernel, const CommandView& command);

  /// The dtypes that are computed in wider ones; static. See Note [Half precision].
  std::span<const c10::ScalarType> widened{};
  /// Called in place of the body, which runs if it returns false. Null: the body always runs.
  RawKernel raw = nullptr;
  /// Makes what computes this command again, and commands with the same values in other storages,
  /// in less time than the body. The bytes outlive what is returned, which is null if the body has
  /// to compute each time.
  using MakeCached = std::unique_ptr<CachedCommand> (*)(const OpKernel& kernel,
                                                        std::span<const std::byte> command);
  MakeCached make_cached = nullptr;
  /// The body uses other memory than the device's: it runs in the program (executor/executor.h).
  bool in_program = false;
};

/// A kernel over CPU tensors. Its body reads the arguments in the order in which they were written,
/// and runs under the launcher's settings: the launching thread's mode for denormals, and no
/// warning a second time.
class OpKernel : public Kernel {
 public:
  using Body = void (*)(const OpKernel& kernel, ArgumentReader& arguments);

  OpKernel(const char* name, Body body, KernelTraits traits = {}, BodyTraits body_traits = {})
      : Kernel(name, &run_command, completed(traits, body_traits)),
        body_(body),
        body_traits_(body_traits) {}

  /// Makes an entry of CommandCache for commands that are alike. The bytes outlive what is
  /// returned.
  std::unique_ptr<CachedCommand> cache_tensors(std::span<const std::byte> command) const;
  /// Makes an entry of CommandCache for commands that are alike and have the same values; null if
  /// the body has to compute each time. The bytes outlive what is returned.
  std::unique_ptr<CachedCommand> cache_computation(std::span<const std::byte> command) const;

 protected:
  /// Whether tensors of some dtypes are replaced by wider ones for the body.
  bool widens(const ArgumentReader& arguments) const {
    return arguments.holds_any(body_traits_.widened);
  }

 private:
  friend class PreparedOp;
  class CachedTensors;

  static KernelTraits completed(KernelTraits traits, const BodyTraits& body_traits) {
    traits.in_executor = !body_traits.in_program;
    traits.prepare = &prepare;
    return traits;
  }
  static void run_command(const Kernel& kernel, std::span<const std::byte> command);
  bool run_raw(std::span<const std::byte> command) const;
  void run_body(ArgumentReader& arguments) const;
  static std::unique_ptr<PreparedCommand> prepare(const Kernel& kernel,
                                                  std::span<const std::byte> command);

  Body body_;
  BodyTraits body_traits_;
};

/// Applies the launcher's settings to the calling thread. The destructor ends the filter of
/// warnings; the mode for denormals stays, until the run slice or the probe restores the thread's
/// own.
class LauncherSettings {
 public:
  explicit LauncherSettings(std::span<const std::byte> command);

 private:
  RepeatedWarningFilter warnings_;
};

/// A command whose tensors are made once for all its runs. Its bytes must outlive it.
class PreparedOp final : public PreparedCommand {
 public:
  PreparedOp(const OpKernel& kernel, std::span<const std::byte> command)
      : kernel_(kernel), command_(command), arguments_(command) {}
  void run() override;

 private:
  const OpKernel& kernel_;
  const std::span<const std::byte> command_;
  ArgumentReader arguments_;
  bool tried_ = false;
  std::unique_ptr<CachedCommand> cached_;  // in place of the body
};

}  // namespace openreg::ops
