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
  if (self.run_raw(command)) return;
  const LauncherSettings settings(command);
  if (CommandCache::run(self, command)) return;
  ArgumentReader arguments(command);
  self.run_body(arguments);
}

class OpKernel::CachedTensors final : public CachedCommand {
 public:
  CachedTensors(const OpKernel& kernel, std::span<const std::byte> command)
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

std::unique_ptr<CachedCommand> OpKernel::cache_tensors(std::span<const std::byte> command) const {
  return std::make_unique<CachedTensors>(*this, command);
}

std::unique_ptr<CachedCommand> OpKernel::cache_computation(
    std::span<const std::byte> command) const {
  if (body_traits_.make_cached == nullptr ||
      CommandView(command).header().storages > ArgumentReader::kMostStorages)
    return nullptr;
  return body_traits_.make_cached(*this, command);
}

bool OpKernel::run_raw(std::span<const std::byte> command) const {
  return body_traits_.raw != nullptr && body_traits_.raw(*this, CommandView(command));
}

void OpKernel::run_body(ArgumentReader& arguments) const {
  if (!body_traits_.widened.empty()) arguments.widen(body_traits_.widened);
  body_(*this, arguments);
  arguments.write_back_outputs();
}

std::unique_ptr<PreparedCommand> OpKernel::prepare(const Kernel& kernel,
                                                   std::span<const std::byte> command) {
  return std::make_unique<PreparedOp>(static_cast<const OpKernel&>(kernel), command);
}

void PreparedOp::run() {
  if (kernel_.run_raw(command_)) return;
  const LauncherSettings settings(command_);
  if (cached_ != nullptr) {
    if (!cached_->run(command_)) cached_ = nullptr;
    return;
  }
  arguments_.rewind();
  kernel_.run_body(arguments_);
  if (!std::exchange(tried_, true)) cached_ = kernel_.cache_computation(command_);
}

}  // namespace openreg::ops
