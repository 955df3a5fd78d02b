#include "backend/submit.h"

#include "backend/compute_threads.h"
#include "backend/exception.h"
#include "memory/debugger.h"
#include "memory/race_detector.h"
#include "runtime/capture.h"
#include "runtime/settings.h"

namespace openreg::backend {

bool checks_commands() noexcept {
  return memory::Debugger::get() != nullptr || memory::RaceDetector::get() != nullptr;
}

void enqueue_checked(openreg::Stream& stream, const char* kernel,
                     std::span<const memory::MemoryUse> memory,
                     const std::function<void()>& enqueue) {
  const auto debugged = [&](Moment) {
    auto* const debugger = memory::Debugger::get();
    debugger ? debugger->enqueue_checked(stream, kernel, memory, enqueue) : enqueue();
  };
  auto* const detector = memory::RaceDetector::get();
  detector ? detector->enqueue_checked(stream, kernel, memory, debugged) : debugged({});
}

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
    if (checks_commands()) {
      const auto used = memory();
      enqueue_checked(stream, kernel.name(), {used.data(), used.size()}, enqueue);
    } else {
      enqueue();
    }
  });
  how.counted_as.add();
}

}  // namespace openreg::backend
