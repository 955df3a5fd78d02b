#include "runtime/address_space/single_step.h"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "runtime/address_space/signal_handler.h"

namespace openreg {

#if defined(__x86_64__)

namespace {

constexpr greg_t kTrapFlag = 0x100;

// Of one instruction: two for each operand that lies on two pages, and more for those that gather.
struct Step {
  std::array<const void*, 8> addresses;
  std::size_t count = 0;
};
thread_local Step t_step;

std::atomic<void (*)(const void*) noexcept> g_after{nullptr};

void stop_after_step(int, siginfo_t* info, void* context);
SignalHandler g_traps(SIGTRAP, &stop_after_step);

void stop_after_step(int, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  auto& step = t_step;
  if (step.count == 0 || info->si_code != TRAP_TRACE) {
    g_traps.call_previous(info, context, /*sent=*/true);
  } else {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    for (std::size_t i = 0; i < step.count; ++i) g_after.load()(step.addresses[i]);
    step.count = 0;
  }
  errno = saved_errno;
}

}  // namespace

void prepare_single_steps(void (*after)(const void* address) noexcept) {
  g_after = after;
  g_traps.install();
}

bool begin_single_step(void* context, const void* address) noexcept {
  auto* const thread = static_cast<ucontext_t*>(context);
  auto& step = t_step;
  // The system ends a process whose thread traps while it blocks the signal.
  if (sigismember(&thread->uc_sigmask, SIGTRAP) == 1 || !g_traps.is_in_front() ||
      step.count == step.addresses.size())
    return false;
  step.addresses[step.count++] = address;
  thread->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  return true;
}

#else

void prepare_single_steps(void (*)(const void*) noexcept) {}

bool begin_single_step(void*, const void*) noexcept { return false; }

#endif

}  // namespace openreg
