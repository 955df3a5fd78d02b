#include "runtime/thread.h"

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace openreg {

namespace {

/// A thread inherits the mask of the one that starts it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
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
