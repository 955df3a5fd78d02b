#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

#include "base/mutex.h"

namespace openreg {

/// Decides whether the machine can hold more memory for the devices. The system promises memory
/// that it may not have, and ends a process that touches too much of it; so what the devices have
/// mapped and not touched yet counts as used. Thread safe.
class MemoryBudget {
 public:
  struct Machine {
    /// What this process can still take; nullopt: unknown.
    std::function<std::optional<std::size_t>()> left;
    /// Bytes that the devices have mapped, an upper bound of the following, and cheap.
    std::function<std::size_t()> mapped;
    /// Bytes that the devices have mapped and the machine does not hold.
    std::function<std::size_t()> untouched;
    /// What is left for everything else.
    std::size_t reserve = 0;
  };
  using Clock = std::chrono::steady_clock;
  /// How long, and for how many bytes at most, an answer serves for further ones.
  static constexpr std::chrono::milliseconds kValid{100};
  static constexpr std::size_t kMostCredit = std::size_t{256} << 20;

  explicit MemoryBudget(Machine machine) : machine_(std::move(machine)) {}

  /// Whether the machine can hold `bytes` more, which the caller maps if so.
  bool grants(std::size_t bytes, Clock::time_point now = Clock::now()) OPENREG_EXCLUDES(mutex_);
  /// How many bytes grants() would grant now at most. Takes milliseconds if much is mapped.
  std::size_t left() const;

 private:
  static std::size_t difference(std::size_t a, std::size_t b) noexcept { return a > b ? a - b : 0; }

  const Machine machine_;
  Mutex mutex_;
  std::size_t credit_ OPENREG_GUARDED_BY(mutex_) = 0;
  Clock::time_point expires_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg
