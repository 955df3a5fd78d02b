#include "backend/submit.h"

#include "backend/compute_threads.h"
#include "backend/exception.h"
#include "backend/faults.h"
#include "base/settings.h"
#include "memory/debugger.h"
#include "memory/race_detector.h"
#include "runtime/capture.h"

namespace openreg::backend {

bool checks_commands() noexcept {
  return memory::Debugger::get() != nullptr || memory::RaceDetector::get() != nullptr ||
         faults::any();
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
    const auto enqueue = [&](const Kernel& run, std::span<const std::byte> its_arguments) {
      if (how.cost.is_long()) note_wanted_threads();
      if (how.waits) {
        stream.enqueue_and_wait(run, its_arguments, how.cost);
      } else if (settings().launch_blocking && capture_of(stream) == 0) {
        const UnseenWaits unseen;  // without the setting there would be none
        stream.enqueue_and_wait(run, its_arguments, how.cost, FailureScope::kDevice);
      } else {
        stream.enqueue(run, its_arguments, how.cost);
      }
    };
    if (!checks_commands()) return enqueue(kernel, arguments);
    const auto used = memory();
    const std::span<const memory::MemoryUse> uses(used.data(), used.size());
    const auto checked = [&](const Kernel& run, std::span<const std::byte> its_arguments) {
      enqueue_checked(stream, kernel.name(), uses, [&] { enqueue(run, its_arguments); });
    };
    // What is captured is not launched: it counts when the graph runs.
    if (!faults::any() || capture_of(stream) != 0) return checked(kernel, arguments);
    enqueue_with_faults(stream, kernel, arguments, uses, checked);
  });
  how.counted_as.add();
}

}  // namespace openreg::backend
