#include "runtime/address_space/single_step.h"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "runtime/address_space/signal_handler.h"

namespace openreg {

#if defined(__x86_64__)

namespace {

constexpr greg_t kTrapFlag = 0x100;

// What the thread will execute one instruction of. A signal handler that interrupts it before that
// instruction may step itself.
struct Step {
  // Of one instruction: two for each operand that lies on two pages, and more for those that
  // gather.
  std::array<const void*, 8> addresses;
  std::size_t count = 0;
  int flags = 0;  // that are set and will trap
};
thread_local Step t_step;

std::atomic<void (*)(const void*) noexcept> g_after{nullptr};

void stop_after_step(SignalHandler::Arrival& trap);
extern SignalHandler g_traps;
constinit SignalHandler g_traps(SIGTRAP, &stop_after_step, kSignalEntries<g_traps>);

void stop_after_step(SignalHandler::Arrival& trap) {
  auto& step = t_step;
  if (step.flags == 0 || trap.info->si_code != TRAP_TRACE) return trap.call_previous();
  static_cast<ucontext_t*>(trap.context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  --step.flags;
  for (std::size_t i = 0; i < step.count; ++i) g_after.load()(step.addresses[i]);
  step.count = 0;
}

}  // namespace

void prepare_single_steps(void (*after)(const void* address) noexcept) {
  g_after = after;
  g_traps.install();  // else there are no single steps
}

bool begin_single_step(void* context, const void* address) noexcept {
  auto* const thread = static_cast<ucontext_t*>(context);
  auto& step = t_step;
  auto& flags = thread->uc_mcontext.gregs[REG_EFL];
  const bool is_set = (flags & kTrapFlag) != 0;  // at a further fault of the instruction
  // The system ends a process whose thread traps while it blocks the signal.
  if (sigismember(&thread->uc_sigmask, SIGTRAP) == 1 || !g_traps.is_in_front() ||
      step.count == step.addresses.size() || (is_set && step.flags == 0))
    return false;
  step.addresses[step.count++] = address;
  if (!is_set) ++step.flags;
  flags |= kTrapFlag;
  return true;
}

#else

void prepare_single_steps(void (*)(const void*) noexcept) {}

bool begin_single_step(void*, const void*) noexcept { return false; }

#endif

}  // namespace openreg
