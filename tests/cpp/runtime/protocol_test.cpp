// The rules that decide the races between producers, owners and waiters. Each test makes the thread
// that usually wins lose, and fails if its rule is removed from the runtime.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../needs_engines.h"
#include "at_point.h"
#include "base/test_point.h"
#include "runtime/event.h"
#include "runtime/process.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

// Gives a wrong runtime time for its mistake; with a correct one there is nothing to wait for.
void give_time_to(const std::atomic<bool>& mistake) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (!mistake && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

TEST(Protocol, AnOwnerThatGoesIdleLooksAtTheTailAgain) {
  const OwnStream stream;
  std::atomic<bool> ran{false};
  const AtPoint point(TestPoint::kGoingIdle, [&] { enqueue(*stream, [&] { ran = true; }); });
  enqueue_nothing(*stream);  // no host waits, because a host that helps would find the lost command
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST(Protocol, AnOwnerThatGoesIdleWakesWhoWaitsForRoom) {
  const OwnStream stream;
  const QueueLimit limit(*stream, 1);
  Blocker blocker(*stream);
  const SleepWatch watch;
  std::atomic<bool> submitted{false};
  std::thread producer([&] {
    enqueue_nothing(*stream);
    submitted = true;
  });
  ASSERT_TRUE(watch.see());
  blocker.open();
  const bool in_time = happens([&] { return submitted.load(); });
  EXPECT_TRUE(in_time);
  if (!in_time) std::_Exit(1);  // the producer cannot be joined
  producer.join();
  stream->synchronize();
}

TEST(Protocol, AStreamIsParkedBeforeItsFenceCanFire) {
  const OwnStream stream;
  ExternalEvent external;
  Gate parking;
  std::atomic<bool> signalled{false};
  std::thread signaller([&] {
    parking.wait();
    external.signal();
    signalled = true;
  });
  const AtPoint point(TestPoint::kParking, [&] {
    parking.open();
    give_time_to(signalled);
  });
  external.wait(*stream);
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });
  EXPECT_TRUE(happens([&] { return ran.load(); }));
  signaller.join();
}

TEST(Protocol, AStreamThatParksWakesWhoWantsToRunIt) {
  OPENREG_NEEDS_ENGINES("the copy engine meets the wait");
  const BusyEngines busy;  // so that only the host gets `first`
  const OwnStream first;
  const OwnStream second;
  enqueue(
      *second, [] {}, copy_kernel());  // the copy engine will meet the wait
  ASSERT_TRUE(happens([&] { return second->query(); }));
  Event event;
  enqueue_nothing(*first);
  event.record(*first);
  Gate waiting;
  std::thread host([&] {
    waiting.wait();
    second->synchronize();
  });
  const SleepWatch watch;
  const AtPoint point(TestPoint::kWillPark, [&] {
    waiting.open();
    EXPECT_TRUE(watch.see());
  });
  event.wait(*second);
  const bool in_time = happens([&] { return first->query() && second->query(); });
  EXPECT_TRUE(in_time);
  if (!in_time) std::_Exit(1);  // the host cannot be joined
  host.join();
}

TEST(Protocol, AStreamIsAsFarAsItsFenceSaysWhenTheFenceFires) {
  const BusyEngines busy;
  const OwnStream stream;
  Event event;
  Gate running;
  Gate end;
  enqueue(
      *stream,
      [&] {
        running.open();
        end.wait();
      },
      waiting_kernel());
  event.record(*stream);
  // One host runs the stream, and stops as soon as it has fired the fence. The other one sleeps.
  std::thread runner([&] { event.synchronize(); });
  running.wait();
  std::atomic<bool> drained{false};
  std::atomic<bool> looked{false};
  const SleepWatch watch;
  std::thread waiter([&] {
    event.synchronize();
    drained = stream->query();
    looked = true;
  });
  ASSERT_TRUE(watch.see());
  const AtPoint point(TestPoint::kFired,
                      [&] { EXPECT_TRUE(happens([&] { return looked.load(); })); });
  end.open();
  runner.join();
  waiter.join();
  EXPECT_TRUE(drained);
}

TEST(Protocol, AnEngineLeavesALongCommandToTheHostThatWaitsForIt) {
  const OwnStream stream;
  const SleepWatch watch;
  const AtPoint point(TestPoint::kLongIsNext, [&] { EXPECT_TRUE(watch.see()); });
  std::thread::id runner;
  enqueue(*stream, [&] { runner = std::this_thread::get_id(); }, function_kernel(),
          {.nanoseconds = Cost::kLong});
  stream->synchronize();
  EXPECT_EQ(runner, std::this_thread::get_id());
}

void expect_host(Stream& stream, std::chrono::milliseconds until) {
  auto& impl = StreamImpl::of(stream);
  const auto now = HostExpectation::Clock::now();
  impl.host_expectation.next_wait = now;
  impl.host_expectation.latest_next_wait = now + until;
}
constexpr std::chrono::milliseconds kForLong{3'000};
constexpr std::chrono::milliseconds kEnginesBegin{20};  // if they do not wait for a host
constexpr Cost kLongCommand{.nanoseconds = 2 * Cost::kLong};

TEST(Protocol, AHostThatHasWaitedTwiceIsExpectedAgain) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  constexpr std::chrono::milliseconds kAway{2};
  const BusyEngines busy;
  const OwnStream stream;
  enqueue_nothing(*stream);
  stream->synchronize();
  std::this_thread::sleep_for(kAway);
  enqueue_nothing(*stream);
  const auto begin = HostExpectation::Clock::now();
  stream->synchronize();
  const auto& impl = StreamImpl::of(*stream);
  EXPECT_GE(impl.host_expectation.next_wait.load(), begin + kAway);
  EXPECT_GE(impl.host_expectation.latest_next_wait.load(),
            impl.host_expectation.next_wait.load() + kAway / 2);
}

TEST(Protocol, AnEngineLeavesALongCommandToTheHostThatIsExpected) {
  const OwnStream stream;
  expect_host(*stream, kForLong);
  std::thread::id runner;
  enqueue(
      *stream, [&] { runner = std::this_thread::get_id(); }, function_kernel(), kLongCommand);
  std::this_thread::sleep_for(kEnginesBegin);
  stream->synchronize();
  EXPECT_EQ(runner, std::this_thread::get_id());
}

TEST(Protocol, AnEngineLeavesNoShortCommand) {
  OPENREG_NEEDS_ENGINES("the host does not wait");
  const OwnStream stream;
  expect_host(*stream, kForLong);
  enqueue_nothing(*stream);
  EXPECT_TRUE(happens([&] { return stream->query(); }));
}

TEST(Protocol, AnEngineDoesNotWaitForAHostForLongerThanATeamTakes) {
  OPENREG_NEEDS_ENGINES("the host does not wait");
  const OwnStream stream;
  StreamImpl::of(*stream).host_expectation.note_wait(HostExpectation::Clock::now(),
                                                     std::chrono::hours(1), {});
  enqueue(
      *stream, [] {}, function_kernel(), kLongCommand);
  EXPECT_TRUE(happens([&] { return stream->query(); }));
}

TEST(Protocol, AnEngineTakesTheStreamBackIfTheExpectedHostDoesNotCome) {
  OPENREG_NEEDS_ENGINES("the host does not wait");
  const OwnStream stream;
  expect_host(*stream, kEnginesBegin);
  std::thread::id runner;
  enqueue(
      *stream, [&] { runner = std::this_thread::get_id(); }, function_kernel(), kLongCommand);
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_NE(runner, std::this_thread::get_id());
}

TEST(Protocol, AnEngineThatHasLeftAStreamRunsOthers) {
  OPENREG_NEEDS_ENGINES("the host does not wait");
  const OwnStream stream;
  const OwnStream other;
  expect_host(*stream, kForLong);
  std::atomic<bool> has_run{false};
  enqueue(
      *stream, [&] { has_run = true; }, function_kernel(), kLongCommand);
  std::this_thread::sleep_for(kEnginesBegin);
  bool before = false;
  enqueue(*other, [&] { before = !has_run; });
  ASSERT_TRUE(happens([&] { return other->query(); }));
  EXPECT_TRUE(before);
  stream->synchronize();
}

TEST(Protocol, AFenceIsDoneWhenItsStreamHasPassedItThoughItHasNotFired) {
  OPENREG_NEEDS_ENGINES("an engine runs the stream while the host asks");
  const OwnStream stream;
  Event event;
  std::atomic<bool> looked{false};
  const AtPoint point(TestPoint::kPopped,
                      [&] { EXPECT_TRUE(happens([&] { return looked.load(); })); });
  Blocker blocker(*stream);
  event.record(*stream);
  blocker.open();
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  stream->synchronize();
  EXPECT_TRUE(event.query());
  looked = true;
}

TEST(Protocol, AProducerThatRunsItsRecordLeavesTheKernelBehindItToAnEngine) {
  OPENREG_NEEDS_ENGINES("without them brief commands do not run at once");
  const OwnStream stream;
  std::thread::id runner;
  const AtPoint point(TestPoint::kPopped, [&] {
    std::thread([&] { enqueue(*stream, [&] { runner = std::this_thread::get_id(); }); }).join();
  });
  Event event;
  event.record(*stream);
  EXPECT_TRUE(event.is_complete());
  ASSERT_TRUE(happens([&] { return stream->idle(); }));
  EXPECT_NE(runner, std::thread::id());
  EXPECT_NE(runner, std::this_thread::get_id());
}

TEST(Protocol, AWaiterThatIsHandedAStreamWhenItsGoalIsReachedGivesItBack) {
  BusyEngines busy;
  const OwnStream stream;
  Event event;
  Gate running;
  Gate end;
  enqueue(
      *stream,
      [&] {
        running.open();
        end.wait();
      },
      waiting_kernel());
  event.record(*stream);
  std::thread runner([&] { stream->synchronize(); });
  running.wait();
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });  // after what the runner waits for
  // The waiter has its event and is about to leave. Meanwhile the runner leaves too.
  const auto grants = counters::grants.value();
  const AtPoint point(TestPoint::kWithdrawing, [&] {
    EXPECT_TRUE(happens([&] { return counters::grants.value() > grants; }));
  });
  const SleepWatch watch;
  std::thread waiter([&] { event.synchronize(); });
  ASSERT_TRUE(watch.see());
  end.open();
  runner.join();
  waiter.join();
  busy.open();
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST(ProtocolDeathTest, NoQueuedCommandRunsOnceTheDeviceIsShutDown) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static Gate running;
        static std::atomic<bool> ran{false};
        static const AtPoint point(TestPoint::kShutDown, [] {
          give_time_to(ran);
          if (ran) std::_Exit(1);
        });
        enqueue(default_stream(0), [] {
          running.open();
          static_cast<void>(happens([] { return is_shut_down(); }));
        });
        enqueue(default_stream(0), [] { ran = true; });
        running.wait();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace openreg
