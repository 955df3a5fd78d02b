#include "ops/launch/op_kernel.h"

#include "backend/denormals.h"
#include "ops/launch/told_warnings.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops {

void OpKernel::run_body(const Kernel& kernel, std::span<const std::byte> command) {
  const auto& header = CommandView(command).header();
  backend::set_flush_denormals(header.flush_denormals);
  ToldWarningFilter warnings;
  if (header.drops_warnings) warnings.drop_all();
  const auto& self = static_cast<const OpKernel&>(kernel);
  ArgumentReader arguments(command);
  self.body_(self, arguments);
  arguments.settle_outputs();
}

}  // namespace openreg::ops
