// Hosts that wait.

#include "runtime/wait.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

bool raises_self_wait(Stream& stream) {
  return contains(error_of([&] { stream.synchronize(); }),
                  ": a command must not wait for its own stream");
}

struct Counts {
  const std::uint64_t commands_by_engines = counters::commands_by_engines.value();
  const std::uint64_t commands_by_hosts = counters::commands_by_hosts.value();
  const std::uint64_t helps = counters::helps.value();
  const std::uint64_t sleeps = counters::sleeps.value();
};

TEST(Wait, TheHostRunsTheStreamThatItWaitsFor) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  BusyEngines busy;
  const OwnStream stream;
  std::thread::id runner;
  enqueue(*stream, [&] { runner = std::this_thread::get_id(); });
  enqueue_nothing(*stream);
  const Counts before;
  stream->synchronize();
  const Counts after;
  EXPECT_EQ(runner, std::this_thread::get_id());
  EXPECT_EQ(after.commands_by_hosts - before.commands_by_hosts, 2u);
  EXPECT_EQ(after.helps - before.helps, 1u);
  EXPECT_EQ(after.sleeps, before.sleeps);
}

TEST(Wait, ADiamondWithNoEngineFreeIsServedByTheWaiterAlone) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  BusyEngines busy;
  const OwnStream top;
  const OwnStream left;
  const OwnStream right(1);
  const OwnStream bottom(1);
  Event from_top;
  Event from_left;
  Event from_right;
  int a = 0;
  int b = 0;
  int c = 0;
  int d = 0;
  enqueue(*top, [&] { a = 1; });
  from_top.record(*top);
  from_top.wait(*left);
  from_top.wait(*right);
  enqueue(*left, [&] { b = a + 1; });
  enqueue(*right, [&] { c = a + 2; });
  from_left.record(*left);
  from_right.record(*right);
  from_left.wait(*bottom);
  from_right.wait(*bottom);
  enqueue(*bottom, [&] { d = b * c; });
  const Counts before;
  bottom->synchronize();
  const Counts after;
  EXPECT_EQ(d, 6);
  EXPECT_EQ(after.commands_by_hosts - before.commands_by_hosts, 4u);
  EXPECT_EQ(after.commands_by_engines, before.commands_by_engines);
  EXPECT_EQ(after.sleeps, before.sleeps);
}

TEST(Wait, TheHostStopsWhenItsGoalIsReached) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  BusyEngines busy;
  const OwnStream stream;
  Event event;
  enqueue_nothing(*stream);
  event.record(*stream);
  bool later = false;
  enqueue(*stream, [&] { later = true; });
  event.synchronize();
  EXPECT_FALSE(later);
  EXPECT_FALSE(stream->query());
  busy.open();
  EXPECT_TRUE(happens([&] { return stream->query(); }));  // the stream was released
  EXPECT_TRUE(later);
}

TEST(Wait, TheHostLeavesUnrelatedStreamsAlone) {
  OPENREG_NOT_AT_RANDOM("it runs commands of all streams");
  BusyEngines busy;
  const OwnStream stream;
  const OwnStream unrelated;
  std::atomic<bool> ran{false};
  enqueue(*unrelated, [&] { ran = true; });
  enqueue_nothing(*stream);
  stream->synchronize();
  EXPECT_FALSE(ran);
  busy.open();
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST(Wait, AnEngineHandsTheStreamOverToTheHostThatWaits) {
  const OwnStream stream;
  Blocker blocker(*stream);
  std::thread::id runner;
  enqueue(*stream, [&] { runner = std::this_thread::get_id(); });
  const auto grants = counters::grants.value();
  const SleepWatch watch;
  std::thread host([&] {
    stream->synchronize();
    EXPECT_EQ(runner, std::this_thread::get_id());
  });
  ASSERT_TRUE(watch.see());
  blocker.open();
  host.join();
  EXPECT_EQ(counters::grants.value(), grants + 1);
}

TEST(Wait, SeveralHostsWaitForOneStream) {
  const OwnStream stream;
  Blocker blocker(*stream);
  int ran = 0;
  for (int i = 0; i < 100; ++i) enqueue(*stream, [&ran] { ++ran; });
  const SleepWatch watch;
  std::vector<std::thread> hosts;
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] {
      stream->synchronize();
      EXPECT_EQ(ran, 100);
    });
  }
  ASSERT_TRUE(watch.see(4));
  blocker.open();
  for (auto& host : hosts) host.join();
}

TEST(Wait, ALongChainOfStreamsIsWalkedToItsBeginning) {
  BusyEngines busy;
  constexpr int kStreams = 100;
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::vector<int> order;
  Event event;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<OwnStream>(i % 2));
    event.wait(**streams.back());
    enqueue(**streams.back(), [&order, i] { order.push_back(i); });
    event.record(**streams.back());
  }
  (*streams.back())->synchronize();
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kStreams));
  for (int i = 0; i < kStreams; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Wait, AFullQueueMakesTheProducerWork) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  BusyEngines busy;
  const OwnStream stream;
  std::uint64_t ran = 0;
  const Counts before;
  for (int i = 0; i < 1025; ++i) enqueue(*stream, [&ran] { ++ran; });
  const Counts after;
  EXPECT_EQ(after.helps - before.helps, 1u);
  EXPECT_EQ(ran, 512u);  // half of the bound, then it continues launching
  stream->synchronize();
  EXPECT_EQ(ran, 1025u);
}

TEST(Wait, AProducerBehindAParkedHeadUsesNoProcessorTime) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  const SleepWatch watch;
  std::atomic<bool> returned{false};
  std::thread producer([&] {
    for (int i = 0; i < 1024; ++i) enqueue_nothing(*stream);
    returned = true;
  });
  ASSERT_TRUE(watch.see());
  // The engines go to sleep within some 40 us. The test measures that time passes without work.
  timespec begin;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  timespec end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  const double used_ms = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e3 +
                         static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-6;
  EXPECT_LT(used_ms, 20.0);
  EXPECT_FALSE(returned);
  external.signal();
  producer.join();
  stream->synchronize();
}

TEST(Wait, ACommandMustNotWaitForItsOwnStream) {
  const OwnStream stream;
  enqueue(*stream, [&] { stream->synchronize(); });
  EXPECT_TRUE(raises_self_wait(*stream));
}

TEST(Wait, ACommandMustNotWaitForItsOwnDevice) {
  const OwnStream stream;
  enqueue(*stream, [] { synchronize_device(0); });
  EXPECT_TRUE(raises_self_wait(*stream));
}

TEST(Wait, ACommandMustNotWaitForALaterEventOfItsOwnStream) {
  const OwnStream stream;
  Event later;
  Gate recorded;
  enqueue(*stream, [&] {
    recorded.wait();
    later.synchronize();
  });
  later.record(*stream);
  recorded.open();
  EXPECT_TRUE(raises_self_wait(*stream));
}

TEST(Wait, ACommandMustNotWaitForAStreamThatIsParkedForItsOwn) {
  OPENREG_NOT_AT_RANDOM("the command may run before the other stream has work");
  const OwnStream stream;
  const OwnStream other;
  Event later;
  const BusyEngines busy;
  enqueue(*stream, [&] { other->synchronize(); });
  later.record(*stream);
  later.wait(*other);
  EXPECT_TRUE(raises_self_wait(*stream));
  EXPECT_NE(error_of([&] { other->synchronize(); }), "nothing");  // the event passes the error on
}

TEST(Wait, ACommandMayWaitForAnEarlierEventOfItsOwnStream) {
  const OwnStream stream;
  Event earlier;
  earlier.record(*stream);
  bool returned = false;
  enqueue(*stream, [&] {
    earlier.synchronize();
    returned = true;
  });
  stream->synchronize();
  EXPECT_TRUE(returned);
}

TEST(Wait, ACommandEnqueuesBeyondTheBoundToItsOwnStream) {
  const OwnStream stream;
  std::atomic<int> ran{0};
  enqueue(*stream, [&] {
    for (int i = 0; i < 5000; ++i) enqueue(*stream, [&ran] { ++ran; });
  });
  stream->synchronize();
  stream->synchronize();
  EXPECT_EQ(ran, 5000);
}

TEST(Wait, ACommandWaitsForAnotherStreamAndRunsIt) {
  const OwnStream outer;
  const OwnStream inner;
  std::thread::id outer_runner;
  std::thread::id inner_runner;
  BusyEngines busy;
  enqueue(*outer, [&] {
    outer_runner = std::this_thread::get_id();
    enqueue(*inner, [&] { inner_runner = std::this_thread::get_id(); });
    inner->synchronize();
  });
  outer->synchronize();
  EXPECT_EQ(outer_runner, std::this_thread::get_id());
  EXPECT_EQ(inner_runner, std::this_thread::get_id());
}

TEST(Wait, AnErrorOfANestedWaitFailsTheCommandThatWaits) {
  const OwnStream outer;
  const OwnStream inner;
  enqueue(*outer, [&] {
    enqueue(*inner, [] { throw std::runtime_error("deep"); });
    inner->synchronize();
  });
  const auto error = error_of([&] { outer->synchronize(); });
  EXPECT_PRED2(contains, error,
               "stream " + std::to_string(outer->id()) +
                   ": test_function failed on openreg:0, stream " + std::to_string(inner->id()) +
                   ": deep");
  EXPECT_EQ(error_of([&] { inner->synchronize(); }), "nothing");
}

}  // namespace
}  // namespace openreg
