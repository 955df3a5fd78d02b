#include "executor/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace openreg::executor {

namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

using Clock = std::chrono::steady_clock;

timespec to_timespec(std::chrono::nanoseconds time) noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000;
  return {static_cast<time_t>(time.count() / kSecond), static_cast<long>(time.count() % kSecond)};
}

}  // namespace

// The waiter announces its sleep before it looks at the value a last time (the system does, within
// the call), and the ringer changes the value before it looks whether anybody sleeps.
void Doorbell::ring(std::uint32_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t Doorbell::wait(std::uint32_t seen,
                             std::optional<std::chrono::milliseconds> limit) noexcept {
  const auto end = limit ? Clock::now() + *limit : Clock::time_point::max();
  sleeps_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == seen) {
    timespec time{};
    if (limit) {
      const auto left = end - Clock::now();
      if (left.count() <= 0) break;
      time = to_timespec(left);
    }
    syscall(SYS_futex, &value_, FUTEX_WAIT, seen, limit ? &time : nullptr, nullptr, 0);
  }
  sleeps_.fetch_sub(1, std::memory_order_seq_cst);
  return value();
}

}  // namespace openreg::executor
