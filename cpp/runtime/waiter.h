#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/intrusive_list.h"
#include "runtime/scheduler_mutex.h"

namespace openreg {

struct StreamImpl;

/// A host thread that waits. It lies on that thread's stack, is registered with at most one stream
/// that the thread wants to run and one fence that it watches, and the thread sleeps on its word.
/// It is woken under the lock of the list that it is registered in, and leaves both lists before it
/// is destroyed.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  /// Forgets an earlier wake(). Called only while it is in no list.
  void reset() noexcept { word_.store(kAwake, std::memory_order_relaxed); }
  void wake() noexcept;
  bool woken() const noexcept { return word_.load(std::memory_order_acquire) == kWoken; }

  /// Sleeps until wake(), a signal, or the end of `limit`; may also return early.
  void sleep(std::optional<std::chrono::milliseconds> limit) noexcept;

  StreamImpl* granted OPENREG_GUARDED_BY(scheduler_mutex) = nullptr;  // the stream handed over
  ListLink<Waiter> as_helper;  // in StreamImpl::helpers; under the scheduler's mutex
  ListLink<Waiter> at_fence;   // in Fence's list; under the fence's mutex
  bool watching = false;       // is in Fence's list; under the fence's mutex

 private:
  enum Word : std::uint32_t { kAwake, kAsleep, kWoken };
  std::atomic<std::uint32_t> word_{kAwake};
};

}  // namespace openreg
