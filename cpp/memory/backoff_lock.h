#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "base/processor.h"

namespace openreg::memory {

/// A lock for sections much shorter than the sleep and wake-up of a thread. A thread that finds it
/// taken polls at increasing intervals, and eventually sleeps in between. No thread is woken:
/// releasing the lock is one store, and a thread that takes it often keeps the guarded data in its
/// core's cache. On two cores, eight threads that only allocate reach the rate of one thread this
/// way, and a third of that rate with std::mutex. Not fair.
class OPENREG_CAPABILITY("mutex") BackoffLock {
 public:
  void lock() noexcept OPENREG_ACQUIRE() {
    if (!taken_.exchange(true, std::memory_order_acquire)) return;
    lock_slowly();
  }
  void unlock() noexcept OPENREG_RELEASE() { taken_.store(false, std::memory_order_release); }

 private:
  void lock_slowly() noexcept {
    constexpr int kMostPauses = 1024;
    int pauses = 8;
    do {
      if (pauses <= kMostPauses) {
        for (int i = 0; i < pauses; ++i) relax_cpu();
        pauses *= 2;
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    } while (taken_.load(std::memory_order_relaxed) ||
             taken_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> taken_{false};
};

}  // namespace openreg::memory
