#include "ops/launch/launch.h"

#include "backend/exception.h"
#include "backend/kernel_warnings.h"
#include "backend/stream.h"
#include "memory/debugger.h"
#include "ops/launch/sync_debug.h"
#include "ops/launch/trial.h"
#include "runtime/error.h"
#include "runtime/settings.h"

namespace openreg::ops {

namespace {

/// Waits for the command just submitted; what it threw comes out as it was thrown.
void wait_for_launched(openreg::Stream& stream, const Kernel& kernel) {
  try {
    stream.synchronize();
  } catch (const CommandError& error) {
    if (error.kernel() == kernel.name()) std::rethrow_exception(error.cause());
    throw;  // of an earlier command
  }
}

void submit_watched(memory::Debugger& debugger, openreg::Stream& stream, const Kernel& kernel,
                    std::span<const std::byte> command) {
  c10::SmallVector<const void*, 6> memory;
  for (const auto& tensor : tensors_of_command(command)) memory.push_back(tensor.data);
  debugger.submit(stream, kernel, command, {memory.data(), memory.size()});
}

}  // namespace

void launch(const Kernel& kernel, ArgumentWriter& arguments, Tier tier, Arguments known) {
  const auto command = arguments.finish();
  const bool unknown = known == Arguments::kUnknown &&
                       (arguments.written_memory_overlaps() || !takes_arguments(kernel, arguments));
  if (unknown) {
    announce_host_wait();
    count_host_wait();
  }
  backend::translate_errors([&] {
    auto& stream = backend::current_stream(arguments.device().index());
    if (auto* debugger = memory::Debugger::get()) {
      submit_watched(*debugger, stream, kernel, command);
    } else {
      stream.submit(kernel, command);
    }
    if (unknown || settings().launch_blocking) wait_for_launched(stream, kernel);
  });
  count_launch(tier);
}

void wait_for_device(c10::Device device) {
  announce_host_wait();
  count_host_wait();
  wait_for_device_again(device);
}

void wait_for_device_again(c10::Device device) {
  backend::translate_errors([&] { backend::current_stream(device.index()).synchronize(); });
  backend::KernelWarnings::raise_kept();
}

}  // namespace openreg::ops
