#include "backend/submit.h"

#include <functional>

#include "backend/compute_threads.h"
#include "backend/exception.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "runtime/capture.h"
#include "runtime/idle_command.h"

namespace openreg::backend {

void submit(openreg::Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
            c10::function_ref<MemoryOfCommand()> memory, const Submission& how) {
  translate_errors([&] {
    const auto enqueue = [&](const Kernel& run, std::span<const std::byte> its_arguments) {
      if (how.cost.is_long()) note_wanted_threads();
      if (how.waits) {
        stream.enqueue_and_wait(run, its_arguments, how.cost);
      } else if (settings().launch_blocking && capture_of(stream) == 0) {
        const InternalWaitScope internal;  // without the setting there would be none
        stream.enqueue_and_wait(run, its_arguments, how.cost, FailureScope::kDevice);
      } else {
        stream.enqueue(run, its_arguments, how.cost);
      }
    };
    if (!memory::checks::any()) return enqueue(kernel, arguments);
    const auto used = memory();
    memory::Launch launch{.stream = stream,
                          .name = kernel.name(),
                          .memory = {used.data(), used.size()},
                          .kernel = &kernel,
                          .arguments = arguments};
    const auto enqueue_launch = [&] {
      if (launch.kernel == launch.idle && !how.waits && !settings().launch_blocking)
        return enqueue_idle(stream, *launch.kernel, launch.arguments, launch.idle_writes);
      enqueue(*launch.kernel, launch.arguments);
    };
    memory::checks::enqueue_checked(launch, std::cref(enqueue_launch));  // without a copy
  });
  how.counted_as.add();
}

}  // namespace openreg::backend
