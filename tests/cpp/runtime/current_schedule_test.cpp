#include "runtime/current_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "graph_helpers.h"
#include "runtime/event.h"
#include "runtime/graph_exec.h"
#include "runtime/process.h"
#include "runtime/stream_operation.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

constexpr Schedule kLatest{.kind = Schedule::Kind::kLatest};
Schedule random_schedule(std::uint64_t seed) {
  return {.kind = Schedule::Kind::kRandom, .seed = seed};
}

const std::vector<Schedule>& adversarial() {
  static const std::vector<Schedule> schedules{kLatest, random_schedule(1), random_schedule(2),
                                               random_schedule(3)};
  return schedules;
}

class ScheduleTest : public ::testing::Test {
 protected:
  void SetUp() override { set_schedule({}); }  // whatever TORCH_OPENREG_SCHEDULE says
  void TearDown() override { set_schedule({}); }
};

TEST_F(ScheduleTest, ItsTextIsReadAsItIsWritten) {
  for (const Schedule& schedule :
       {Schedule{}, kLatest, random_schedule(0), random_schedule(UINT64_MAX)})
    EXPECT_EQ(Schedule::parse(schedule.text()), schedule);
  EXPECT_EQ(random_schedule(7).text(), "random:7");
  EXPECT_EQ(Schedule{}.text(), "earliest");
  EXPECT_EQ(Schedule::parse("default"), Schedule{});
  for (const char* text : {"", "Latest", "latest ", "random", "random:", "random:-1", "random:+1",
                           "random:1.5", "random:18446744073709551616", "random:1 ", "early"})
    EXPECT_EQ(Schedule::parse(text), std::nullopt) << text;
}

TEST_F(ScheduleTest, WhatIsSetIsInForce) {
  EXPECT_EQ(schedule(), Schedule{});
  set_schedule(random_schedule(5));
  EXPECT_EQ(schedule(), random_schedule(5));
}

TEST_F(ScheduleTest, AChangeWaitsForWhatWasSubmitted) {
  const OwnStream stream;
  for (const Schedule& schedule : {kLatest, random_schedule(1), Schedule{}}) {
    bool ran = false;
    enqueue(*stream, [&] { ran = true; });
    set_schedule(schedule);
    EXPECT_TRUE(ran) << schedule.text();
  }
}

TEST_F(ScheduleTest, LatestRunsAConsumerWithoutAnOrderBeforeItsProducer) {
  set_schedule(kLatest);
  const OwnStream one;
  const OwnStream two;
  for (int run = 0; run < 100; ++run) {
    Stream& producer = run % 2 ? *one : *two;
    Stream& consumer = run % 2 ? *two : *one;
    int value = 0;
    int seen = -1;
    enqueue(producer, [&] { value = 1; });
    enqueue(consumer, [&] { seen = value; });
    consumer.synchronize();
    EXPECT_EQ(seen, 0);
    EXPECT_EQ(value, 0);
    producer.synchronize();
    EXPECT_EQ(value, 1);
  }
}

TEST_F(ScheduleTest, LatestDoesSoAlsoIfTheHostWaitsForTheDevice) {
  set_schedule(kLatest);
  const OwnStream one;
  const OwnStream two;
  for (int run = 0; run < 100; ++run) {
    Stream& producer = run % 2 ? *one : *two;
    Stream& consumer = run % 2 ? *two : *one;
    Event before;
    int values[2] = {0, 0};
    int seen[2] = {-1, -1};
    // What was submitted first to the producer has run when the host waits for the device.
    enqueue_nothing(producer);
    before.record(producer);
    enqueue(producer, [&] { values[0] = 1; });
    enqueue(consumer, [&] { seen[0] = values[0]; });
    enqueue(producer, [&] { values[1] = 1; });
    enqueue(consumer, [&] { seen[1] = values[1]; });
    before.synchronize();
    synchronize_device(0);
    EXPECT_EQ(seen[0], 0);
    EXPECT_EQ(seen[1], 0);
  }
}

// How a host waits for all that the two streams were given.
enum class End { kDevice, kStream };
void finish(End end, Stream& last) {
  end == End::kDevice ? synchronize_device(0) : last.synchronize();
}

// As with a collective whose result is used without a wait for it.
TEST_F(ScheduleTest, LatestRunsAConsumerFirstAfterWhatItsProducerWaitsFor) {
  set_schedule(kLatest);
  const OwnStream main;
  const OwnStream side;
  for (int run = 0; run < 100; ++run) {
    int value = 0;
    int seen = -1;
    enqueue(*main, [&] { value = 1; });
    wait_stream(*side, *main);
    enqueue(*side, [&] { value *= 2; });
    enqueue(*main, [&] { seen = value; });
    synchronize_device(0);
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(value, 2);
  }
}

// The consumer waits for its producer, which then goes on.
TEST_F(ScheduleTest, AWaitThatIsOverDoesNotKeepAConsumerBack) {
  set_schedule(kLatest);
  const OwnStream main;
  const OwnStream side;
  for (int run = 0; run < 100; ++run) {
    int value = 0;
    int seen = -1;
    enqueue(*main, [&] { value = 1; });
    wait_stream(*side, *main);
    enqueue(*main, [&] { value = 2; });
    enqueue(*side, [&] { seen = value; });
    synchronize_device(0);
    EXPECT_EQ(seen, 1);
  }
}

// As with memory that one stream uses again while another one still reads it.
TEST_F(ScheduleTest, LatestRunsWhatWasSubmittedLastFirstInAllWaits) {
  set_schedule(kLatest);
  const OwnStream main;
  const OwnStream side;
  for (const End end : {End::kDevice, End::kStream}) {
    for (int run = 0; run < 100; ++run) {
      int value = 0;
      int seen[2] = {-1, -1};
      for (int step = 0; step < 2; ++step) {
        enqueue(*main, [&value, step] { value = 10 + step; });
        wait_stream(*side, *main);
        enqueue(*side, [&value, &seen, step] { seen[step] = value; });
      }
      finish(end, *side);
      EXPECT_EQ(seen[0], 11);
      EXPECT_EQ(seen[1], 11);
    }
  }
}

TEST_F(ScheduleTest, AWaitForADeviceNeedsWhatItsStreamsWaitForOnOthers) {
  const OwnStream here;
  const OwnStream there(1);
  const OwnStream beyond(1);
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    int value = 0;
    bool ran = false;
    enqueue(*beyond, [&] { value = 1; });
    wait_stream(*there, *beyond);
    enqueue(*there, [&] { value += 1; });
    wait_stream(*here, *there);
    enqueue(*here, [&] { value *= 10; });
    enqueue(*there, [&] { ran = true; });
    synchronize_device(0);
    EXPECT_EQ(value, 20);
    if (schedule == kLatest) {
      EXPECT_FALSE(ran);
    }
    set_schedule({});
    EXPECT_TRUE(ran);
  }
}

TEST_F(ScheduleTest, LatestRunsNothingBeforeAHostWaits) {
  set_schedule(kLatest);
  const OwnStream stream;
  const OwnStream unrelated;
  Event first;
  Event second;
  std::atomic<int> ran{0};
  enqueue(*unrelated, [&] { ran += 100; });
  enqueue(*stream, [&] { ++ran; });
  first.record(*stream);
  enqueue(*stream, [&] { ++ran; });
  second.record(*stream);
  EXPECT_FALSE(first.is_complete());
  EXPECT_EQ(ran, 0);
  first.synchronize();
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(second.is_complete());
  stream->synchronize();
  EXPECT_EQ(ran, 2);
  unrelated->synchronize();
  EXPECT_EQ(ran, 102);
}

TEST_F(ScheduleTest, ACorrectProgramComputesTheSameInAll) {
  const OwnStream producer;
  const OwnStream consumer(1);
  const OwnStream copies(0, Priority::kHigh);
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    std::vector<int> seen;
    int value = 0;
    int copied = 0;
    Event produced;
    Event copied_event;
    Event consumed;
    for (int i = 0; i < 50; ++i) {
      consumed.wait(*producer);
      enqueue(*producer, [&, i] { value = i; });
      produced.record(*producer);
      produced.wait(*copies);
      enqueue(
          *copies, [&] { copied = value; }, copy_kernel());
      copied_event.record(*copies);
      copied_event.wait(*consumer);
      enqueue(*consumer, [&] { seen.push_back(copied); });
      consumed.record(*consumer);
    }
    consumer->synchronize();
    std::vector<int> expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(seen, expected) << schedule.text();
  }
}

// The order in which the commands of eight streams ran.
std::vector<int> order_under(const Schedule& schedule) {
  set_schedule(schedule);
  std::vector<std::unique_ptr<OwnStream>> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(std::make_unique<OwnStream>(i % 2));
  Log log;
  Event event;
  for (int i = 0; i < 200; ++i) {
    Stream& stream = **streams[static_cast<std::size_t>(i) % streams.size()];
    append(stream, log, i);
    if (i % 7 == 0) event.record(stream);
    if (i % 11 == 0) event.wait(stream);
    if (i % 50 == 49) stream.synchronize();
  }
  set_schedule({});
  return log.take();
}

TEST_F(ScheduleTest, TheSameSeedGivesTheSameOrder) {
  for (const Schedule& schedule : adversarial()) {
    const std::vector<int> first = order_under(schedule);
    EXPECT_EQ(first.size(), 200u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(order_under(schedule), first) << schedule.text();
  }
}

TEST_F(ScheduleTest, OtherSeedsGiveOtherOrders) {
  std::vector<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    orders.push_back(order_under(random_schedule(seed)));
  std::ranges::sort(orders);
  EXPECT_EQ(std::ranges::unique(orders).size(), 0u);
}

TEST_F(ScheduleTest, SomeSeedsRunAConsumerBeforeItsProducerAndOthersAfterIt) {
  const OwnStream producer;
  const OwnStream consumer;
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    set_schedule(random_schedule(seed));
    int value = 0;
    int seen = -1;
    enqueue(*producer, [&] { value = 1; });
    enqueue(*consumer, [&] { seen = value; });
    synchronize_device(0);
    if (seen == 0) ++wrong;
  }
  EXPECT_GE(wrong, 4);
  EXPECT_LE(wrong, 36);
}

TEST_F(ScheduleTest, AskingUntilItIsTrueEnds) {
  const OwnStream producer;
  const OwnStream consumer;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    Event produced;
    Event consumed;
    int ran = 0;
    enqueue(*producer, [&] { ++ran; });
    produced.record(*producer);
    produced.wait(*consumer);
    enqueue(*consumer, [&] { ++ran; });
    consumed.record(*consumer);
    enqueue(*consumer, [&] { ++ran; });
    const auto begin = std::chrono::steady_clock::now();
    while (!consumed.query()) {
    }
    if (schedule == kLatest) {
      EXPECT_EQ(ran, 2);
    }
    while (!consumer->query()) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
    EXPECT_EQ(ran, 3);
    enqueue(*consumer, [&] { ++ran; });
    produced.record(*consumer);
    while (!produced.poll()) {
    }
    EXPECT_EQ(ran, 4);
  }
}

TEST_F(ScheduleTest, LatestRefusesTheFirstQuestion) {
  set_schedule(kLatest);
  const OwnStream stream;
  Event first{true};
  Event second{true};
  int ran = 0;
  first.record(*stream);
  enqueue(*stream, [&] { ++ran; });
  second.record(*stream);
  EXPECT_FALSE(second.query());
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(first.query());  // what comes later has been asked about
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(second.query());
  EXPECT_EQ(ran, 1);
  enqueue(*stream, [&] { ++ran; });
  EXPECT_FALSE(stream->query());
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(stream->query());
  EXPECT_EQ(ran, 2);
  enqueue(*stream, [&] { ++ran; });
  first.record(*stream);
  EXPECT_TRUE(first.poll());  // the allocator asks until it is true
  EXPECT_EQ(ran, 3);
}

TEST_F(ScheduleTest, AskingDoesNotRunWhatMayBlock) {
  const OwnStream stream;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    Gate gate;
    std::thread::id runner;
    enqueue(
        *stream,
        [&] {
          gate.wait();
          runner = std::this_thread::get_id();
        },
        blocking_kernel());
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(stream->query());
    enqueue_nothing(*stream);  // random: nor does a submission
    gate.open();
    EXPECT_TRUE(happens([&] { return stream->query(); }));
    EXPECT_NE(runner, std::this_thread::get_id());
  }
}

TEST_F(ScheduleTest, AFullQueueMakesItsProducerWork) {
  const OwnStream stream;
  const QueueLimit limit(*stream, 8);
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    int ran = 0;
    for (int i = 0; i < 100; ++i) enqueue(*stream, [&ran] { ++ran; });
    EXPECT_GE(ran, 92);
    stream->synchronize();
    EXPECT_EQ(ran, 100);
  }
}

TEST_F(ScheduleTest, EnginesRunWhatASleepingThreadDependsOn) {
  const OwnStream stream;
  const OwnStream other;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    Gate gate;
    Event before;
    enqueue_nothing(*other);
    before.record(*other);
    before.wait(*stream);
    enqueue(*stream, [&] { gate.open(); });
    gate.wait();
  }
}

TEST_F(ScheduleTest, EnginesRunWhatASpinningThreadDependsOn) {
  set_schedule(kLatest);
  const OwnStream stream;
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST_F(ScheduleTest, EnginesRunWhatAThreadDependsOnBesideABusyOne) {
  set_schedule(kLatest);
  const OwnStream stream;
  const OwnStream busy;
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });
  EXPECT_TRUE(happens([&] {
    enqueue_nothing(*busy);
    busy->synchronize();
    return ran.load();
  }));
}

TEST_F(ScheduleTest, AWaitWithADeadlineLeavesItsWorkToEngines) {
  const OwnStream stream;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    Gate gate;
    Event event;
    enqueue(
        *stream, [&] { gate.wait(); }, blocking_kernel());
    event.record(*stream);
    EXPECT_FALSE(event.synchronize_within(std::chrono::milliseconds(10)));
    gate.open();
    EXPECT_TRUE(event.synchronize_within(std::chrono::seconds(30)));
  }
}

TEST_F(ScheduleTest, WorkOutsideTheDeviceGoesOn) {
  const OwnStream stream;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    ExternalEvent external;
    int ran = 0;
    external.wait(*stream);
    enqueue(*stream, [&] { ++ran; });
    std::thread outside([&] { external.signal(); });
    stream->synchronize();
    outside.join();
    EXPECT_EQ(ran, 1);
  }
}

class EndsAtOnce : public StreamOperation, public std::enable_shared_from_this<EndsAtOnce> {
 public:
  EndsAtOnce() : StreamOperation("test_ends_at_once") {}
  void begin() override {
    begun = true;
    std::thread([self = shared_from_this()] { self->end(); }).detach();
  }
  std::atomic<bool> begun{false};
};

TEST_F(ScheduleTest, AnOperationBeginsWhenAHostNeedsIt) {
  static const OperationKernel kernel("test_ends_at_once");
  const OwnStream stream;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    const auto operation = std::make_shared<EndsAtOnce>();
    enqueue(*stream, kernel, operation);
    if (schedule == kLatest) {
      EXPECT_FALSE(operation->begun);
    }
    stream->synchronize();
    EXPECT_TRUE(operation->begun);
  }
}

TEST_F(ScheduleTest, GraphsOfSeveralLanesRunInOrder) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto graph = GraphExec::make(captured(*stream, [&] {
    append(*stream, log, 0);
    wait_stream(*side, *stream);
    append(*side, log, 1);
    append(*stream, log, 2);
    wait_stream(*stream, *side);
    append(*stream, log, 3);
  }));
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    for (int run = 0; run < 20; ++run) graph->enqueue(*stream);
    stream->synchronize();
    const std::vector<int> numbers = log.take();
    ASSERT_EQ(numbers.size(), 80u);
    for (std::size_t run = 0; run < 80; run += 4) {
      EXPECT_EQ(numbers[run], 0);
      EXPECT_EQ(numbers[run + 1] + numbers[run + 2], 3);
      EXPECT_EQ(numbers[run + 3], 3);
    }
  }
}

// The numbers in the order in which the nodes ran in the second replay: 0, then 1 and 2 on two
// lanes without an edge between them, then 3.
std::vector<int> order_of_replay(const Schedule& schedule, bool last_on_side, End end) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  set_schedule({});
  const auto graph = GraphExec::make(captured(*stream, [&] {
    append(*stream, log, 0);
    wait_stream(*side, *stream);
    append(last_on_side ? *stream : *side, log, 1);
    append(last_on_side ? *side : *stream, log, 2);
    wait_stream(*stream, *side);
    append(*stream, log, 3);
  }));
  set_schedule(schedule);
  for (int replay = 0; replay < 2; ++replay) {
    log.take();
    graph->enqueue(*stream);
    finish(end, *stream);
  }
  return log.take();
}

TEST_F(ScheduleTest, NodesWithoutAnEdgeRunInTheOtherOrder) {
  for (const bool last_on_side : {false, true}) {
    for (const End end : {End::kDevice, End::kStream}) {
      EXPECT_EQ(order_of_replay(kLatest, last_on_side, end), (std::vector{0, 2, 1, 3}));
      int swapped = 0;
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const std::vector<int> order = order_of_replay(random_schedule(seed), last_on_side, end);
        if (order == std::vector{0, 2, 1, 3}) ++swapped;
      }
      EXPECT_GE(swapped, 4);
      EXPECT_LE(swapped, 36);
    }
  }
}

TEST_F(ScheduleTest, CommandsThatSubmitAndWaitGoOn) {
  const OwnStream outer;
  const OwnStream inner;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    int ran = 0;
    enqueue(*outer, [&] {
      for (int i = 0; i < 10; ++i) enqueue(*inner, [&] { ++ran; });
      inner->synchronize();
      ++ran;
    });
    outer->synchronize();
    EXPECT_EQ(ran, 11);
  }
}

TEST_F(ScheduleTest, AFailureIsRaisedByTheCallThatWaits) {
  const OwnStream stream;
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    enqueue(*stream, [] { throw std::runtime_error("bad"); });
    EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
    enqueue(*stream, [] { throw std::runtime_error("bad"); });
    EXPECT_NE(error_of([&] {
                while (!stream->query()) {
                }
              }),
              "nothing");
  }
}

TEST_F(ScheduleTest, ADestroyedStreamIsReusedWhenItHasDrained) {
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    Event event;
    int ran = 0;
    {
      const OwnStream stream;
      enqueue(*stream, [&] { ++ran; });
      event.record(*stream);
    }
    const OwnStream other;
    enqueue(*other, [&] { ++ran; });
    event.synchronize();
    other->synchronize();
    EXPECT_EQ(ran, 2);
  }
}

TEST_F(ScheduleTest, SeveralThreadsFinishTheirWork) {
  for (const Schedule& schedule : adversarial()) {
    set_schedule(schedule);
    std::atomic<int> ran{0};
    std::vector<std::unique_ptr<OwnStream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<OwnStream>(i % 2));
    std::vector<std::thread> hosts;
    for (int host = 0; host < 4; ++host) {
      hosts.emplace_back([&, host] {
        Event event;
        for (int i = 0; i < 200; ++i) {
          Stream& mine = **streams[static_cast<std::size_t>(host)];
          Stream& next = **streams[static_cast<std::size_t>(host + i) % 4];
          enqueue(mine, [&] { ++ran; });
          event.record(mine);
          event.wait(next);
          enqueue(next, [&] { ++ran; });
          if (i % 10 == 9) next.synchronize();
          if (i % 25 == 24) event.query();
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    for (int device = 0; device < 2; ++device) synchronize_device(device);
    EXPECT_EQ(ran, 1600) << schedule.text();
  }
}

class ScheduleDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ScheduleDeathTest, WhatIsQueuedAtExitRuns) {
  for (const Schedule& schedule : adversarial()) {
    EXPECT_EXIT(
        {
          set_schedule(schedule);
          enqueue(create_stream(0), [] { std::fputs("first\n", stderr); });
          enqueue(create_stream(1), [] { throw std::runtime_error("second"); });
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "second");
  }
}

TEST_F(ScheduleDeathTest, TheEnvironmentSetsTheFirstSchedule) {
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_SCHEDULE", "latest", 1);
        std::atomic<bool> ran{false};
        Stream& stream = create_stream(0);
        enqueue(stream, [&] { ran = true; });
        const bool late = !ran;
        stream.synchronize();
        std::fputs((schedule().text() + (late && ran ? " late" : " early")).c_str(), stderr);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "latest late");
}

}  // namespace
}  // namespace openreg
