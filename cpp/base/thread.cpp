#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace openreg {

namespace {

/// A thread inherits the signal mask of the thread that starts it. Signals for its own faults stay
/// unblocked: a blocked one would end the process without a message, and a write to memory that is
/// moving is such a fault (ipc_memory.cpp).
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t others;
    sigfillset(&others);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&others, fault);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void start_detached_thread(const char* name, std::function<void()> main) {
  const BlockedSignals blocked;
  std::thread([name, main = std::move(main)] {
#ifdef __linux__
    pthread_setname_np(pthread_self(), name);
#endif
    main();
  }).detach();
}

void disable_wakeup_preemption() noexcept {
#ifdef SCHED_BATCH
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
#endif
}

}  // namespace openreg
