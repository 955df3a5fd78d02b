#include "ops/launch/op_kernel.h"

#include <utility>

#include "base/processor.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops {

LauncherSettings::LauncherSettings(std::span<const std::byte> command) {
  const auto& header = CommandView(command).header();
  set_flush_denormals(header.flush_denormals);
  if (header.drops_warnings) warnings_.drop_all();
}

void OpKernel::run_command(const Kernel& kernel, std::span<const std::byte> command) {
  const auto& self = static_cast<const OpKernel&>(kernel);
  if (self.compute_directly(command)) return;
  const LauncherSettings settings(command);
  if (KeptCommands::run(self, command)) return;
  ArgumentReader arguments(command);
  self.run_body(arguments);
}

class OpKernel::KeptTensors final : public KeptCommand {
 public:
  KeptTensors(const OpKernel& kernel, std::span<const std::byte> command)
      : kernel_(kernel), arguments_(command) {}

  bool run(std::span<const std::byte> command) override {
    arguments_.move_to(command, [](std::uint32_t, std::ptrdiff_t) {});
    kernel_.run_body(arguments_);
    return arguments_.can_serve_again();
  }

 private:
  const OpKernel& kernel_;
  ArgumentReader arguments_;
};

std::unique_ptr<KeptCommand> OpKernel::keep_tensors(std::span<const std::byte> command) const {
  return std::make_unique<KeptTensors>(*this, command);
}

std::unique_ptr<KeptCommand> OpKernel::keep_whole(std::span<const std::byte> command) const {
  if (body_traits_.keep == nullptr ||
      CommandView(command).header().storages > ArgumentReader::kMostStorages)
    return nullptr;
  return body_traits_.keep(*this, command);
}

bool OpKernel::compute_directly(std::span<const std::byte> command) const {
  return body_traits_.direct != nullptr && body_traits_.direct(*this, CommandView(command));
}

void OpKernel::run_body(ArgumentReader& arguments) const {
  if (!body_traits_.widened.empty()) arguments.widen(body_traits_.widened);
  body_(*this, arguments);
  arguments.settle_outputs();
}

std::unique_ptr<PreparedCommand> OpKernel::prepare(const Kernel& kernel,
                                                   std::span<const std::byte> command) {
  return std::make_unique<PreparedOp>(static_cast<const OpKernel&>(kernel), command);
}

void PreparedOp::run() {
  if (kernel_.compute_directly(command_)) return;
  const LauncherSettings settings(command_);
  if (kept_ != nullptr) {
    if (!kept_->run(command_)) kept_ = nullptr;
    return;
  }
  arguments_.rewind();
  kernel_.run_body(arguments_);
  if (!std::exchange(tried_, true)) kept_ = kernel_.keep_whole(command_);
}

}  // namespace openreg::ops
