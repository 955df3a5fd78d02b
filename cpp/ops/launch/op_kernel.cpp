#include "ops/launch/op_kernel.h"

#include "ops/wire/command_layout.h"
#include "runtime/processor.h"

namespace openreg::ops {

LauncherSettings::LauncherSettings(std::span<const std::byte> command) {
  const auto& header = CommandView(command).header();
  set_flush_denormals(header.flush_denormals);
  if (header.drops_warnings) warnings_.drop_all();
}

void OpKernel::run_body(const Kernel& kernel, std::span<const std::byte> command) {
  const LauncherSettings settings(command);
  ArgumentReader arguments(command);
  static_cast<const OpKernel&>(kernel).run_body(arguments);
}

void OpKernel::run_body(ArgumentReader& arguments) const {
  if (!widened_.empty()) arguments.widen(widened_);
  body_(*this, arguments);
  arguments.settle_outputs();
}

std::unique_ptr<PreparedCommand> OpKernel::prepare(const Kernel& kernel,
                                                   std::span<const std::byte> command) {
  return std::make_unique<PreparedOp>(static_cast<const OpKernel&>(kernel), command);
}

void PreparedOp::run() {
  const LauncherSettings settings(command_);
  arguments_.rewind();
  kernel_.run_body(arguments_);
}

}  // namespace openreg::ops
