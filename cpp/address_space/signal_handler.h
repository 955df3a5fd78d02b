#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "base/mutex.h"

namespace openreg {

/// The library's handler of one signal. A signal that is not for the library goes on as if this
/// handler were not there: to the handler installed before it, with that handler's mask and flags,
/// or to the default action. See Note [Our signal handlers among others] in signal_handler.cpp. A
/// static object that is constant-initialised, with kSignalEntries of itself: handlers read it.
class SignalHandler {
  /// One of the entry functions, and the handler that it stands in front of.
  struct Place {
    struct sigaction before {};
    std::atomic<bool> used_up{false};  // by SA_RESETHAND
  };

 public:
  static constexpr std::size_t kMost = 16;
  using Entry = void (*)(int signal, siginfo_t* info, void* context);
  using Entries = std::array<Entry, kMost>;

  /// A signal that arrived at one of the entry functions. Its functions are async-signal-safe.
  class Arrival {
   public:
    Arrival(int signal, siginfo_t* info, void* context, Place& place) noexcept
        : info(info), context(context), signal_(signal), place_(place) {}

    siginfo_t* const info;
    void* const context;

    /// Whether kill() or the like sent the signal, so `info` has no address.
    bool sent() const noexcept { return info->si_code <= 0; }
    /// Calls the handler before this entry, or ends the process if that is the default. May return.
    /// Then a fault occurs again, unless the function has changed its cause: `occurs_again`.
    void call_previous() noexcept { call_previous(/*occurs_again=*/!sent()); }
    void call_previous(bool occurs_again) noexcept;
    /// Installs the handler before this entry again; it gets the signal when this handler has
    /// returned.
    void restore_previous() noexcept;

   private:
    void restore(const struct sigaction& action, bool occurs_again) noexcept;

    const int signal_;
    Place& place_;
  };
  using Function = void (*)(Arrival& arrival);

  constexpr SignalHandler(int signal, Function function, const Entries& entries) noexcept
      : signal_(signal), function_(function), entries_(entries) {}

  /// Puts this handler in front of the installed one, unless it is in front already. False: that is
  /// not possible, because the program has installed too many different handlers. Thread safe.
  bool install();

  /// For kSignalEntries.
  void arrive(std::size_t place, int signal, siginfo_t* info, void* context) noexcept;

 private:
  bool is_ours(const struct sigaction& action) const noexcept;
  Entry entry_in_front_of(const struct sigaction& action) OPENREG_REQUIRES(mutex_);

  const int signal_;
  const Function function_;
  const Entries entries_;
  Mutex mutex_;
  std::array<Place, kMost> places_{};
  std::size_t used_ OPENREG_GUARDED_BY(mutex_) = 0;  // of the places
};

/// The entry functions of `handler`.
template <SignalHandler& handler>
inline constexpr SignalHandler::Entries kSignalEntries = [
]<std::size_t... places>(std::index_sequence<places...>) {
  return SignalHandler::Entries{+[](int signal, siginfo_t* info, void* context) {
    handler.arrive(places, signal, info, context);
  }...};
}
(std::make_index_sequence<SignalHandler::kMost>());

}  // namespace openreg
