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
  const auto& self = static_cast<const OpKernel&>(kernel);
  ArgumentReader arguments(command);
  self.body_(self, arguments);
  arguments.settle_outputs();
}

std::unique_ptr<PreparedCommand> OpKernel::prepare(const Kernel& kernel,
                                                   std::span<const std::byte> command) {
  return std::make_unique<PreparedOp>(static_cast<const OpKernel&>(kernel), command);
}

void PreparedOp::run() {
  const LauncherSettings settings(command_);
  arguments_.rewind();
  kernel_.body_(kernel_, arguments_);
  arguments_.settle_outputs();
}

}  // namespace openreg::ops
