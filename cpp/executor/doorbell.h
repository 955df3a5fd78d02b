#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace openreg::executor {

/// A number in memory that two processes share: one of them changes it, a thread of the other one
/// waits for the change. It sleeps in a futex without spinning first: on two cores, a third thread
/// that spins takes ten times what it saves.
class Doorbell {
 public:
  std::uint32_t value() const noexcept { return value_.load(std::memory_order_acquire); }
  /// What the caller has written before is visible to a waiter that sees the value.
  void ring(std::uint32_t value) noexcept;
  /// Returns when the value is no longer `seen`, or after the limit. Returns the value.
  std::uint32_t wait(std::uint32_t seen,
                     std::optional<std::chrono::milliseconds> limit = std::nullopt) noexcept;

 private:
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleeps_{0};
};

}  // namespace openreg::executor
