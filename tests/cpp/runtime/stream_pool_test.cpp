#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "../needs_engines.h"
#include "runtime/event.h"
#include "runtime/scheduler.h"
#include "runtime/stream_pool.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

bool is_parked(Stream& stream) { return !Scheduler::get().is_runnable(StreamImpl::of(stream)); }

std::string name(const Stream& stream) {
  return "openreg:" + std::to_string(stream.device()) + " stream " + std::to_string(stream.id());
}

TEST(StreamPool, ShowsADebuggerWhatEachStreamRunsAndWaitsFor) {
  OPENREG_NEEDS_ENGINES("streams park without a wait");
  OwnStream failed, running, second, outer;
  enqueue(*failed, [] { throw std::runtime_error("an error"); });
  failed->drain();  // the error stays

  Blocker blocker(*running, blocking_kernel());
  Event event;
  event.record(*running);
  event.wait(*second);
  constexpr int kMoreThanAChunk = 40;
  for (int i = 0; i < kMoreThanAChunk; ++i) enqueue_nothing(*second);
  ExternalEvent outside("a collective");
  outside.wait(*outer);
  ASSERT_TRUE(happens([&] { return is_parked(*second) && is_parked(*outer); }));

  const std::string dump = openreg_dump_streams();
  for (const std::string& line : {
           std::string(" commands completed, failed\n"),
           name(*running) +
               ": running, 0 of 2 commands completed; next: test_blocking_function, event at "
               "command 2 of " +
               name(*running) + "\n",
           name(*second) + ": parked, 0 of 41 commands completed; next: wait for command 2 of " +
               name(*running) + ", test_nothing, test_nothing, test_nothing\n",
           name(*outer) + ": parked, 0 of 1 commands completed; next: wait for \"a collective\"\n",
       }) {
    EXPECT_PRED2(contains, dump, line) << line << "is not in\n" << dump;
  }
  blocker.open();
  outside.signal();
  second->synchronize();
  outer->synchronize();
  EXPECT_THROW(failed->synchronize(), std::exception);
}

}  // namespace
}  // namespace openreg
