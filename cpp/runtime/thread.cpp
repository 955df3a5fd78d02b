#include "runtime/thread.h"

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace openreg {

namespace {

/// A thread inherits the mask of the one that starts it. Faults of the thread's own are its own to
/// handle: blocked, they would end the process without a word, and a write to memory that moves is
/// one (ipc_memory.cpp).
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

void start_detached_thread(std::function<void()> main) {
  const BlockedSignals blocked;
  std::thread(std::move(main)).detach();
}

}  // namespace openreg
