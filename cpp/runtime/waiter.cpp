#include "runtime/waiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace openreg {

// Uses the system call directly: std::atomic::wait and condition variables go back to sleep when a
// signal arrives, so Ctrl-C would have to wait for the device.

void Waiter::wake() noexcept {
  if (word_.exchange(kWoken, std::memory_order_acq_rel) != kAsleep) return;
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Waiter::sleep(std::optional<std::chrono::milliseconds> limit) noexcept {
  std::uint32_t expected = kAwake;
  word_.compare_exchange_strong(expected, kAsleep, std::memory_order_acq_rel);
  timespec time{};
  if (limit) {
    time.tv_sec = static_cast<time_t>(limit->count() / 1000);
    time.tv_nsec = static_cast<long>(limit->count() % 1000 * 1000000);
  }
  // Returns at once if the word is no longer kAsleep.
  syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kAsleep, limit ? &time : nullptr, nullptr, 0);
}

}  // namespace openreg
