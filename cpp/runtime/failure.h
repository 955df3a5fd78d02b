#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace openreg {

/// What a command threw, on its way to the call that collects it. Shared by the streams that it
/// poisons.
class Failure {
 public:
  /// `source` is the failed kernel's name, and static.
  Failure(const char* source, int device, std::int64_t stream, std::exception_ptr cause);

  /// Failures in the order in which they happened.
  std::uint64_t sequence() const noexcept { return sequence_; }

  /// Throws it as a CommandError. From now on it counts as collected.
  [[noreturn]] void raise();
  bool collected() const noexcept { return collected_.load(std::memory_order_relaxed); }
  /// Not to be raised: a call threw an older one in its place.
  void set_collected() noexcept { collected_.store(true, std::memory_order_relaxed); }
  /// What is printed at exit if no call collected it.
  std::string epitaph() const;

 private:
  const char* source_;
  int device_;
  std::int64_t stream_;
  std::exception_ptr cause_;
  std::uint64_t sequence_;
  std::atomic<bool> collected_{false};
};

using FailurePtr = std::shared_ptr<Failure>;

}  // namespace openreg
