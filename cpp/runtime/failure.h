#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "runtime/launch_site.h"

namespace openreg {

/// What a command threw, on its way to the call that collects it. Shared by the streams that it
/// poisons.
class Failure {
 public:
  /// `source` is the failed kernel's name, and static; `site` the line that launched it.
  Failure(const char* source, LaunchSite site, int device, std::int64_t stream,
          std::exception_ptr cause);
  /// Nobody can collect it any more: prints what print_if_uncollected() prints.
  ~Failure() { print_if_uncollected(); }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  /// Failures in the order in which they happened.
  std::uint64_t sequence() const noexcept { return sequence_; }

  /// Throws it as a CommandError. From now on it counts as collected.
  [[noreturn]] void raise();
  /// One line on stderr, the first time, if no call has collected it.
  void print_if_uncollected() noexcept;

 private:
  std::string epitaph() const;

  const char* source_;
  LaunchSite site_;
  int device_;
  std::int64_t stream_;
  std::exception_ptr cause_;
  std::uint64_t sequence_;
  std::atomic<bool> collected_{false};
};

using FailurePtr = std::shared_ptr<Failure>;

}  // namespace openreg
