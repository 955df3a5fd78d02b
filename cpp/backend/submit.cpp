#include "backend/submit.h"

#include "backend/compute_threads.h"
#include "backend/exception.h"
#include "memory/debugger.h"
#include "runtime/capture.h"
#include "runtime/settings.h"

namespace openreg::backend {

void submit(openreg::Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
            c10::function_ref<MemoryOfCommand()> memory, const Submission& how) {
  translate_errors([&] {
    const auto enqueue = [&] {
      if (how.cost.is_long()) note_wanted_threads();
      if (how.waits || (settings().launch_blocking && capture_of(stream) == 0)) {
        stream.enqueue_and_wait(kernel, arguments, how.cost);
      } else {
        stream.enqueue(kernel, arguments, how.cost);
      }
    };
    if (auto* debugger = memory::Debugger::get()) {
      const auto used = memory();
      debugger->enqueue_checked(stream, kernel, {used.data(), used.size()}, enqueue);
    } else {
      enqueue();
    }
  });
  how.counted_as.add();
}

}  // namespace openreg::backend
