#include "runtime/address_space/signal_handler.h"

#include <cstring>

namespace openreg {

bool SignalHandler::is_in_front() const noexcept {
  struct sigaction now;
  sigaction(signal_, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == function_;
}

void SignalHandler::install() {
  const LockGuard lock(mutex_);
  const auto count = count_.load();
  if (is_in_front() || count == kMost) return;
  sigaction(signal_, nullptr, &before_[count]);  // set before the first signal can need it
  count_ = count + 1;
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  sigemptyset(&action.sa_mask);
  action.sa_sigaction = function_;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal_, &action, nullptr);
}

// A fault of the processor occurs again when the handler returns, so restoring the old disposition
// is enough; a signal that was sent must be sent again.
void SignalHandler::restore_previous(bool sent) noexcept {
  sigaction(signal_, &before(sent), nullptr);
  if (sent) raise(signal_);  // blocked until the handler returns
}

void SignalHandler::call_previous(siginfo_t* info, void* context, bool sent) noexcept {
  const struct sigaction& previous = before(sent);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal_, info, context);
  } else if (previous.sa_handler == SIG_IGN && sent) {
    return;
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    restore_previous(sent);
  } else {
    previous.sa_handler(signal_);
  }
}

}  // namespace openreg
