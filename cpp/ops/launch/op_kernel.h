#pragma once

#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"
#include "runtime/command.h"

namespace openreg::ops {

/// A kernel over CPU tensors. Its body reads the arguments in the order in which they were written,
/// and runs under the launcher's settings: denormals as the launcher has them, no warning twice.
class OpKernel : public Kernel {
 public:
  using Body = void (*)(const OpKernel& kernel, ArgumentReader& arguments);

  OpKernel(const char* name, Body body, KernelTraits traits = {})
      : Kernel(name, &run_body, with_check(traits)), body_(body) {}

 private:
  static KernelTraits with_check(KernelTraits traits) {
    traits.check = &expect_layout;
    return traits;
  }
  static void run_body(const Kernel& kernel, std::span<const std::byte> command);

  Body body_;
};

}  // namespace openreg::ops
