#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <span>

#include "ops/launch/repeated_warnings.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"
#include "runtime/command.h"

namespace openreg::ops {

/// A kernel over CPU tensors. Its body reads the arguments in the order in which they were written,
/// and runs under the launcher's settings: the launching thread's mode for denormals, and no
/// warning a second time.
class OpKernel : public Kernel {
 public:
  using Body = void (*)(const OpKernel& kernel, ArgumentReader& arguments);

  /// `widened`: the dtypes that the kernel computes in float32; static. See Note [Half precision].
  OpKernel(const char* name, Body body, KernelTraits traits = {},
           std::span<const c10::ScalarType> widened = {})
      : Kernel(name, &run_body, completed(traits)), body_(body), widened_(widened) {}

 private:
  friend class PreparedOp;

  static KernelTraits completed(KernelTraits traits) {
    traits.check = &expect_layout;
    if (!traits.prepare) traits.prepare = &prepare;
    return traits;
  }
  static void run_body(const Kernel& kernel, std::span<const std::byte> command);
  void run_body(ArgumentReader& arguments) const;
  static std::unique_ptr<PreparedCommand> prepare(const Kernel& kernel,
                                                  std::span<const std::byte> command);

  Body body_;
  std::span<const c10::ScalarType> widened_;
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
};

}  // namespace openreg::ops
