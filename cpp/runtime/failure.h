#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "base/launch_site.h"
#include "base/mutex.h"

namespace openreg {

/// What a command threw, on its way to the call that collects it. Shared by the streams that it
/// poisons.
class Failure {
 public:
  /// `source` is the failed kernel's name, and static; `site` the line that launched it.
  Failure(const char* source, LaunchSite site, int device, std::int64_t stream,
          std::exception_ptr cause);
  /// Prints the failure if no call has collected it.
  ~Failure() { print_if_uncollected(); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  /// Numbers failures in the order in which they occurred.
  std::uint64_t sequence() const noexcept { return sequence_; }

  /// Throws the failure as a CommandError. It then counts as collected.
  [[noreturn]] void raise();
  /// The failure counts as collected from now on. Returns whether it did before.
  bool set_collected() noexcept { return collected_.exchange(true, std::memory_order_relaxed); }
  /// What failed, where, and why: a sentence without its full stop.
  std::string describe() const;
  /// Prints one line to stderr, on the first call, if no call has collected the failure.
  void print_if_uncollected() noexcept;

 private:
  const char* source_;
  LaunchSite site_;
  int device_;
  std::int64_t stream_;
  std::exception_ptr cause_;
  std::uint64_t sequence_;
  std::atomic<bool> collected_{false};
};

using FailurePtr = std::shared_ptr<Failure>;

/// The failure that poisons a stream, if any. Thread safe.
class FailureSlot {
 public:
  /// Whether there is one. Takes no lock.
  bool full() const noexcept { return full_.load(std::memory_order_acquire); }
  /// Keeps a failure, unless there is one already.
  void put(FailurePtr failure) noexcept;
  /// The failure; null if there is none.
  FailurePtr get() const noexcept;
  /// Returns the failure, if any, and removes it.
  FailurePtr take() noexcept;
  /// Like take(), but only if the failure is the expected one; otherwise null.
  FailurePtr take(const Failure* expected) noexcept;

 private:
  std::atomic<bool> full_{false};
  mutable Mutex mutex_;
  FailurePtr failure_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg
