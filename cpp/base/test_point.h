#pragma once

#ifdef OPENREG_TESTING
#include <atomic>
#endif

namespace openreg {

/// Points at which the protocol's races are decided. A test that is built with OPENREG_TESTING
/// stops a thread there, so that the other one wins; in other builds they do not exist.
enum class TestPoint {
  kGoingIdle,    // the owner has seen an empty queue, and is about to give up the stream
  kWillPark,     // the owner has seen that the stream has to wait, and is about to park it
  kParking,      // the stream is parked and not yet linked to its fence
  kPopped,       // a record has been completed and has left the queue, its fence has not fired
  kFired,        // the fence has fired
  kLongIsNext,   // an engine is about to give a host a moment before a long command
  kWithdrawing,  // a waiter that was registered with a stream is about to look for a grant
  kShutDown,     // the device has been shut down, commands that run have not been waited for
};

#ifdef OPENREG_TESTING
inline std::atomic<void (*)(TestPoint)> g_test_hook{nullptr};
inline void reach(TestPoint point) {
  if (auto* const hook = g_test_hook.load()) hook(point);
}
#else
inline void reach(TestPoint) {}
#endif

}  // namespace openreg
