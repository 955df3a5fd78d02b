#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <utility>

#include "base/test_point.h"
#include "stream_helpers.h"

namespace openreg::testing {

/// Calls `action` the first time that any thread reaches `point`, on that thread.
class AtPoint {
 public:
  AtPoint(TestPoint point, std::function<void()> action) {
    g_point = point;
    g_action = std::move(action);
    g_state = kArmed;
    g_test_hook = [](TestPoint reached) {
      State armed = kArmed;
      if (reached != g_point || !g_state.compare_exchange_strong(armed, kActing)) return;
      g_action();
      g_state = kDone;
    };
  }
  /// Waits for an action that has begun: it refers to the test's variables.
  ~AtPoint() {
    State armed = kArmed;
    g_state.compare_exchange_strong(armed, kDone);
    EXPECT_TRUE(happens([] { return g_state == kDone; }));
    g_test_hook = nullptr;
  }
  AtPoint(const AtPoint&) = delete;
  AtPoint& operator=(const AtPoint&) = delete;

 private:
  enum State { kArmed, kActing, kDone };

  static inline std::atomic<TestPoint> g_point{};
  static inline std::function<void()> g_action;
  static inline std::atomic<State> g_state{kDone};
};

}  // namespace openreg::testing
