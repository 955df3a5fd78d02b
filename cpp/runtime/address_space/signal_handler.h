#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "runtime/mutex.h"

namespace openreg {

/// Our handler of one signal, and those that were there before it, which get what is not for us.
/// A static object: handlers read it.
///
/// A handler that must see each signal is installed again if the program, or Python's faulthandler,
/// has installed another one since. That one may know ours as the handler before it, and pass a
/// signal on to it by sending it again: so signals that were sent go to the first of all.
class SignalHandler {
 public:
  using Function = void (*)(int signal, siginfo_t* info, void* context);

  constexpr SignalHandler(int signal, Function function) noexcept
      : signal_(signal), function_(function) {}

  /// Installs ours, unless it is the one in front. Thread safe.
  void install();
  /// Async-signal-safe.
  bool is_in_front() const noexcept;

  // For our handler.

  /// `sent`: by kill(), or does not occur again when the handler returns.
  void call_previous(siginfo_t* info, void* context, bool sent) noexcept;
  /// Lets the signal have its original effect.
  void restore_previous(bool sent) noexcept;

 private:
  static constexpr std::size_t kMost = 8;

  const struct sigaction& before(bool sent) const noexcept {
    return before_[sent ? 0 : count_.load() - 1];
  }

  const int signal_;
  const Function function_;
  Mutex mutex_;
  std::array<struct sigaction, kMost> before_{};  // of each installation
  std::atomic<std::size_t> count_{0};
};

}  // namespace openreg
