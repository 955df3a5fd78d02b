#include "address_space/signal_handler.h"

#include <cerrno>
#include <cstring>

namespace openreg {

// Note [Our signal handlers among others]
// A program, Python's faulthandler or a crash reporter may install a handler after ours. Ours must
// be in front to see each signal, so it is installed again, and passes on to that handler what is
// not for us. That handler may know ours as the one before it. It calls ours, or restores ours and
// raises the signal, or restores ours and waits for the fault to occur again. If there were only
// one function of ours, it could not tell such a signal from a new one, and would pass it on to
// that handler again.
//
// So there is an entry function for each handler that ours has been put in front of. An entry asks
// us first, and then does what the handler behind it would do: the signal takes the way that it
// would take if each of our entries were replaced by the handler behind it. So what is put in front
// of the same handler a second time is the same entry.
namespace {

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

struct sigaction default_action() noexcept {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  sigemptyset(&action.sa_mask);
  action.sa_handler = SIG_DFL;
  return action;
}

bool same(const struct sigaction& a, const struct sigaction& b) noexcept {
  if (a.sa_flags != b.sa_flags || a.sa_handler != b.sa_handler) return false;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&a.sa_mask, signal) != sigismember(&b.sa_mask, signal)) return false;
  }
  return true;
}

struct sigaction installed(int signal) noexcept {
  auto action = default_action();
  sigaction(signal, nullptr, &action);
  return action;
}

}  // namespace

bool SignalHandler::is_ours(const struct sigaction& action) const noexcept {
  if ((action.sa_flags & SA_SIGINFO) == 0) return false;
  for (const auto entry : entries_) {
    if (action.sa_sigaction == entry) return true;
  }
  return false;
}

// A place is filled before its entry can be installed, and does not change afterwards.
SignalHandler::Entry SignalHandler::entry_in_front_of(const struct sigaction& action) {
  for (std::size_t i = 0; i < used_; ++i) {
    if (!same(places_[i].before, action)) continue;
    places_[i].used_up = false;
    return entries_[i];
  }
  if (used_ == kMost) return nullptr;
  places_[used_].before = action;
  return entries_[used_++];
}

bool SignalHandler::install() {
  const LockGuard lock(mutex_);
  auto now = installed(signal_);
  while (!is_ours(now)) {
    const auto entry = entry_in_front_of(now);
    if (entry == nullptr) return false;
    auto action = default_action();
    action.sa_sigaction = entry;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // System calls go on after a signal that is ignored.
    if (!is_handler(now) || (now.sa_flags & SA_RESTART) != 0) action.sa_flags |= SA_RESTART;
    struct sigaction replaced;
    if (sigaction(signal_, &action, &replaced) != 0) return false;
    if (same(replaced, now)) break;
    now = replaced;  // which another thread has installed in the meantime
  }
  return true;
}

void SignalHandler::arrive(std::size_t place, int signal, siginfo_t* info, void* context) noexcept {
  const int saved_errno = errno;
  Arrival arrival(signal, info, context, places_[place]);
  function_(arrival);
  errno = saved_errno;
}

// If the signal occurs again when the handler returns, another disposition is enough; a signal that
// was sent must be sent again.
void SignalHandler::Arrival::restore(const struct sigaction& action, bool occurs_again) noexcept {
  sigaction(signal_, &action, nullptr);
  if (!occurs_again) raise(signal_);  // blocked until the handler returns
}

void SignalHandler::Arrival::restore_previous() noexcept {
  restore(place_.used_up ? default_action() : place_.before, /*occurs_again=*/!sent());
}

void SignalHandler::Arrival::call_previous(bool occurs_again) noexcept {
  const auto& previous = place_.before;
  if (!is_handler(previous)) {
    // The system ignores no fault.
    if (previous.sa_handler == SIG_IGN && (previous.sa_flags & SA_SIGINFO) == 0 && sent()) return;
    return restore(default_action(), occurs_again);
  }
  if ((previous.sa_flags & SA_RESETHAND) != 0 && place_.used_up.exchange(true))
    return restore(default_action(), occurs_again);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, &previous.sa_mask, &mask);
  if ((previous.sa_flags & SA_NODEFER) != 0 && sigismember(&previous.sa_mask, signal_) != 1) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal_);
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal_, info, context);
  } else {
    previous.sa_handler(signal_);
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace openreg
