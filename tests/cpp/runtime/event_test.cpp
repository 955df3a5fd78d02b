#include "runtime/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

TEST(Event, IsDoneAndNoWaitBeforeItWasRecorded) {
  const OwnStream stream;
  Event event;
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.device(), -1);
  event.wait(*stream);
  event.synchronize();
  EXPECT_TRUE(stream->query());
}

TEST(Event, AWaitOrdersTwoStreams) {
  const OwnStream first;
  const OwnStream second(1);
  Event event;
  std::atomic<bool> happened{false};
  bool ordered = false;
  Blocker blocker(*first);
  enqueue(*first, [&] { happened = true; });
  event.record(*first);
  EXPECT_EQ(event.device(), 0);
  event.wait(*second);
  enqueue(*second, [&] { ordered = happened; });
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(second->query());
  blocker.open();
  second->synchronize();
  EXPECT_TRUE(ordered);
  EXPECT_TRUE(event.query());
}

TEST(Event, AWaiterOfAnEarlierRecordIsNotFreedByALaterOneOnAQuickerStream) {
  const OwnStream slow;
  const OwnStream quick;
  const OwnStream waiting;
  Event event;
  std::atomic<bool> happened{false};
  bool ordered = false;
  Blocker blocker(*slow);
  enqueue(*slow, [&] { happened = true; });
  event.record(*slow);
  event.wait(*waiting);
  enqueue(*waiting, [&] { ordered = happened; });
  event.record(*quick);
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(waiting->query());
  blocker.open();
  waiting->synchronize();
  EXPECT_TRUE(ordered);
}

TEST(Event, AWaitThatIsReachedAfterALaterRecordIsForTheEarlierOne) {
  const OwnStream slow;
  const OwnStream quick;
  const OwnStream waiting;
  ExternalEvent held;
  Event event;
  std::atomic<bool> ran{false};
  const auto parks = counters::parks.value();
  held.wait(*waiting);
  ASSERT_TRUE(happens([&] { return counters::parks.value() == parks + 1; }));
  ExternalEvent slow_work;
  slow_work.wait(*slow);
  event.record(*slow);
  event.wait(*waiting);
  enqueue(*waiting, [&] { ran = true; });
  event.record(*quick);
  event.synchronize();
  ASSERT_TRUE(happens([&] { return counters::parks.value() == parks + 2; }));  // `slow`
  held.signal();
  EXPECT_TRUE(happens([&] { return counters::parks.value() == parks + 3 || ran; }));
  EXPECT_FALSE(ran);
  slow_work.signal();
  waiting->synchronize();
  EXPECT_TRUE(ran);
}

TEST(Event, SynchronizeReturnsWhileLaterWorkIsQueuedBehindIt) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const OwnStream stream;
  Event event;
  bool happened = false;
  enqueue(*stream, [&] { happened = true; });
  event.record(*stream);
  Gate end_of_later_work;
  enqueue(*stream, [&] { end_of_later_work.wait(); });
  event.synchronize();
  EXPECT_TRUE(happened);
  EXPECT_FALSE(stream->query());
  end_of_later_work.open();
  stream->synchronize();
}

TEST(Event, IsDoneWhenItsStreamIsSynchronized) {
  const OwnStream stream;
  Event event;
  for (int i = 0; i < 1000; ++i) {
    enqueue_nothing(*stream);
    event.record(*stream);
    stream->synchronize();
    ASSERT_TRUE(event.query());
  }
}

TEST(Event, ItsStreamIsDoneWhenTheLastEventIsSynchronized) {
  const OwnStream stream;
  Event event;
  for (int i = 0; i < 1000; ++i) {
    enqueue_nothing(*stream);
    event.record(*stream);
    event.synchronize();
    ASSERT_TRUE(stream->query());
  }
}

TEST(Event, ALimitBeyondTheEndOfTheClockIsNone) {
  using Milliseconds = std::chrono::milliseconds;
  for (const auto limit : {Milliseconds::max(), Milliseconds::max() / 1'000'000}) {
    const OwnStream stream;
    Event event;
    Blocker blocker(*stream);
    event.record(*stream);
    const SleepWatch watch;
    std::atomic<bool> returned{false};
    bool completed = false;
    std::thread host([&] {
      completed = event.synchronize_within(limit);
      returned = true;
    });
    EXPECT_TRUE(happens([&] { return returned || watch.sees(); }));
    EXPECT_FALSE(returned);
    blocker.open();
    host.join();
    EXPECT_TRUE(completed);
  }
}

TEST(Event, ALimitInThePastIsOverAtOnce) {
  const OwnStream stream;
  Event event;
  Blocker blocker(*stream);
  event.record(*stream);
  EXPECT_FALSE(event.synchronize_within(std::chrono::milliseconds(0)));
  EXPECT_FALSE(event.synchronize_within(std::chrono::milliseconds::min()));
  blocker.open();
  stream->synchronize();
  EXPECT_TRUE(event.synchronize_within(std::chrono::milliseconds::min()));
}

TEST(Event, AWaitOnItsOwnStreamOrForThePastEnqueuesNothing) {
  const OwnStream stream;
  const OwnStream other;
  Event event;
  Blocker blocker(*stream);
  event.record(*stream);
  event.wait(*stream);  // a parked stream here would never see its own record
  blocker.open();
  stream->synchronize();
  const auto parks = counters::parks.value();
  event.wait(*other);
  EXPECT_TRUE(other->query());
  EXPECT_EQ(counters::parks.value(), parks);
}

TEST(Event, ARecordAndAWaitOnIdleStreamsWakeNoEngine) {
  OPENREG_NEEDS_ENGINES("without them brief commands do not run at once");
  BusyEngines busy;
  const OwnStream source;
  const OwnStream waiting;
  Event event;
  event.record(*source);
  EXPECT_TRUE(event.is_complete());
  ExternalEvent outside;
  const auto parks = counters::parks.value();
  outside.wait(*waiting);
  EXPECT_EQ(counters::parks.value(), parks + 1);
  outside.signal();
  busy.open();
  EXPECT_TRUE(happens([&] { return waiting->idle(); }));
}

TEST(Event, IsDestroyedWithWaitsPending) {
  const OwnStream first;
  const OwnStream second;
  Blocker blocker(*first);
  std::atomic<bool> happened{false};
  bool ordered = false;
  enqueue(*first, [&] { happened = true; });
  {
    Event event;
    event.record(*first);
    event.wait(*second);
  }
  enqueue(*second, [&] { ordered = happened; });
  blocker.open();
  second->synchronize();
  EXPECT_TRUE(ordered);
}

TEST(Event, OutlivesTheStreamThatItWasRecordedOn) {
  Event event;
  const OwnStream waiting;
  bool ran = false;
  auto blocker = [&] {
    const OwnStream stream;
    auto result = std::make_unique<Blocker>(*stream);
    event.record(*stream);
    event.wait(*waiting);
    return result;
  }();
  enqueue(*waiting, [&] { ran = true; });
  EXPECT_FALSE(event.query());
  blocker->open();
  waiting->synchronize();
  event.synchronize();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(event.query());
}

TEST(Event, ManyStreamsWaitForOne) {
  const OwnStream source;
  Event event;
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::atomic<bool> happened{false};
  std::atomic<int> ordered{0};
  Blocker blocker(*source);
  enqueue(*source, [&] { happened = true; });
  event.record(*source);
  for (int i = 0; i < 50; ++i) {
    streams.push_back(std::make_unique<OwnStream>(i % 2));
    event.wait(**streams.back());
    enqueue(**streams.back(), [&] { ordered += happened; });
  }
  blocker.open();
  for (const auto& stream : streams) (*stream)->synchronize();
  EXPECT_EQ(ordered, 50);
}

TEST(Event, IsRecordedAndWaitedForFromManyThreads) {
  Event event;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&event, t] {
      const OwnStream stream(t % 2);
      for (int i = 0; i < 500; ++i) {
        enqueue_nothing(*stream);
        event.record(*stream);
        event.wait(*stream);
        if (i % 16 == 0) event.synchronize();
      }
      stream->synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(event.query());
}

TEST(Event, ElapsedTimeIsBetweenTheRecords) {
  const OwnStream stream;
  Event start(true);
  Event end(true);
  start.record(*stream);
  enqueue(*stream, [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  end.record(*stream);
  stream->synchronize();
  EXPECT_GE(Event::elapsed_ms(start, end), 2.0);
  EXPECT_DOUBLE_EQ(Event::elapsed_ms(start, end), -Event::elapsed_ms(end, start));
}

TEST(Event, ElapsedTimeIsRefusedWhereThereIsNone) {
  const std::string sentence = "openreg: the time between two events is unknown (got ";
  const OwnStream stream;
  Event timed(true);
  timed.record(*stream);
  stream->synchronize();
  Event untimed;
  untimed.record(*stream);
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(timed, untimed); }),
            sentence + "an event without timing, expected two made with timing enabled)");
  Event unrecorded(true);
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(timed, unrecorded); }),
            sentence + "an event that was never recorded, expected two recorded ones)");
  const OwnStream elsewhere(1);
  Event foreign(true);
  foreign.record(*elsewhere);
  elsewhere->synchronize();
  const std::string of_one = ", expected two of one device); each device has its own clock";
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(timed, foreign); }),
            sentence + "events of openreg:0 and openreg:1" + of_one);
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(foreign, timed); }),
            sentence + "events of openreg:1 and openreg:0" + of_one);
  EXPECT_EQ(Event::elapsed_ms(foreign, foreign), 0);
  Event pending(true);
  Blocker blocker(*stream);
  pending.record(*stream);
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(timed, pending); }),
            sentence +
                "an event that has not completed, expected two completed events); "
                "synchronize them first");
}

TEST(ExternalEvent, ReleasesTheStreamsThatWait) {
  const OwnStream stream;
  ExternalEvent external;
  std::atomic<bool> ran{false};
  external.wait(*stream);
  enqueue(*stream, [&] { ran = true; });
  EXPECT_FALSE(stream->query());
  external.signal();
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST(ExternalEvent, ReleasesAStreamWithoutWaiters) {
  const OwnStream stream;
  ExternalEvent external;
  const auto parks = counters::parks.value();
  external.wait(*stream);
  enqueue_nothing(*stream);
  ASSERT_TRUE(happens([&] { return counters::parks.value() > parks; }));
  external.signal();
  EXPECT_TRUE(happens([&] { return stream->query(); }));
}

TEST(ExternalEvent, IsOneShotAndNoWaitOnceItHasHappened) {
  const OwnStream stream;
  ExternalEvent external;
  external.signal();
  external.signal(std::make_exception_ptr(std::runtime_error("too late")));
  external.wait(*stream);
  EXPECT_TRUE(stream->query());
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(ExternalEvent, AnErrorPoisonsEachStreamThatWaitsAndIsRaisedOnceByEach) {
  const OwnStream first;
  const OwnStream second;
  ExternalEvent external;
  external.wait(*first);
  external.signal(std::make_exception_ptr(std::runtime_error("peer is gone")));
  external.wait(*second);  // also after it has happened
  for (const OwnStream* const stream : {&first, &second}) {
    bool skipped = true;
    enqueue(**stream, [&] { skipped = false; });
    EXPECT_EQ(error_of([&] { (*stream)->synchronize(); }),
              "openreg: external event failed on openreg:0, stream " +
                  std::to_string((*stream)->id()) +
                  ": peer is gone. Later work on that stream was skipped; set "
                  "TORCH_OPENREG_STACKS=1 to report the line of the call, or "
                  "TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call");
    EXPECT_TRUE(skipped);
    EXPECT_EQ(error_of([&] { (*stream)->synchronize(); }), "nothing");
  }
}

TEST(ExternalEvent, DestroyedBeforeItHappenedItFailsItsWaiters) {
  const OwnStream stream;
  {
    ExternalEvent external;
    external.wait(*stream);
  }
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }),
               "an external event was destroyed before it was signalled");
}

}  // namespace
}  // namespace openreg
