#include "runtime/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "failing_memory.h"
#include "runtime/event.h"
#include "runtime/stream_operation.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;
using What = TraceSlice::What;

constexpr std::size_t kEnough = 100'000;

std::vector<TraceSlice> of(const Trace& trace, What what) {
  std::vector<TraceSlice> slices;
  std::ranges::copy_if(trace.slices, std::back_inserter(slices),
                       [what](const TraceSlice& slice) { return slice.what == what; });
  std::ranges::sort(slices, {}, &TraceSlice::begin);
  return slices;
}

/// The one submission that queued `slice`.
TraceSlice submission_of(const TraceSlice& slice, const Trace& trace) {
  const auto submissions = of(trace, What::kSubmission);
  const auto found = std::ranges::find(submissions, slice.id, &TraceSlice::id);
  EXPECT_NE(found, submissions.end());
  EXPECT_EQ(std::ranges::count(submissions, slice.id, &TraceSlice::id), 1);
  return found == submissions.end() ? TraceSlice{} : *found;
}

TEST(Trace, ACommandIsASliceOfItsStreamAndJoinedToItsSubmission) {
  const OwnStream stream(1);
  tracing::start(kEnough);
  enqueue_nothing(*stream);
  stream->synchronize();
  const Trace trace = tracing::stop();

  const auto commands = of(trace, What::kCommand);
  ASSERT_EQ(commands.size(), 1u);
  const TraceSlice& command = commands[0];
  EXPECT_STREQ(command.name, "test_nothing");
  EXPECT_EQ(command.device, 1);
  EXPECT_EQ(command.stream, stream->id());
  EXPECT_LE(command.begin, command.end);
  EXPECT_NE(command.id, 0u);
  const TraceSlice submission = submission_of(command, trace);
  EXPECT_EQ(submission.submits, What::kCommand);
  EXPECT_STREQ(submission.name, "test_nothing");
  EXPECT_LE(submission.begin, command.begin);
}

TEST(Trace, SlicesOfAStreamFollowEachOtherInTheOrderOfSubmission) {
  const OwnStream stream;
  tracing::start(kEnough);
  for (int i = 0; i < 500; ++i) enqueue_nothing(*stream);
  stream->synchronize();
  const Trace trace = tracing::stop();

  const auto commands = of(trace, What::kCommand);
  ASSERT_EQ(commands.size(), 500u);
  for (std::size_t i = 1; i < commands.size(); ++i) {
    EXPECT_GE(commands[i].begin, commands[i - 1].end);
    EXPECT_GT(commands[i].id, commands[i - 1].id);
  }
}

TEST(Trace, WithoutARecordingNothingIsKept) {
  const OwnStream stream;
  enqueue_nothing(*stream);
  stream->synchronize();
  EXPECT_FALSE(tracing::on());
  tracing::start(kEnough);
  EXPECT_TRUE(tracing::on());
  EXPECT_TRUE(tracing::stop().slices.empty());
}

TEST(Trace, WhatBeganBeforeTheRecordingIsNotInIt) {
  const OwnStream stream;
  Blocker blocker(*stream);
  tracing::start(kEnough);
  enqueue_nothing(*stream);
  blocker.open();
  stream->synchronize();
  const auto commands = of(tracing::stop(), What::kCommand);
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_STREQ(commands[0].name, "test_nothing");
}

TEST(Trace, WhatWasQueuedBeforeTheRecordingIsInItWithoutASubmission) {
  const OwnStream stream;
  Blocker blocker(*stream);
  enqueue_nothing(*stream);
  tracing::start(kEnough);
  blocker.open();
  stream->synchronize();
  const Trace trace = tracing::stop();
  const auto commands = of(trace, What::kCommand);
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(commands[0].id, 0u);
  EXPECT_TRUE(of(trace, What::kSubmission).empty());
}

TEST(Trace, APauseIsLeftOut) {
  const OwnStream stream;
  const auto run_one = [&] {
    enqueue_nothing(*stream);
    stream->synchronize();
  };
  tracing::resume();  // there is no recording to continue
  EXPECT_FALSE(tracing::on());
  tracing::start(kEnough);
  run_one();
  tracing::pause();
  run_one();
  tracing::resume();
  run_one();
  EXPECT_EQ(of(tracing::stop(), What::kCommand).size(), 2u);
}

TEST(Trace, BeyondItsBoundSlicesAreCounted) {
  const OwnStream stream;
  tracing::start(10);
  for (int i = 0; i < 20; ++i) enqueue_nothing(*stream);
  stream->synchronize();
  const Trace trace = tracing::stop();
  EXPECT_EQ(trace.slices.size(), 10u);
  EXPECT_GE(trace.dropped, 30u);  // 20 submissions and 20 commands, and perhaps a wait
  EXPECT_LE(trace.dropped, 31u);
}

TEST(Trace, AWaitForAnEventLastsUntilTheEventHasHappened) {
  OPENREG_NEEDS_ENGINES("without them brief commands do not run at once");
  const OwnStream first;
  const OwnStream second(1);
  const auto parks = counters::parks.value();
  tracing::start(kEnough);
  {
    Blocker blocker(*first);
    Event event;
    event.record(*first);
    event.wait(*second);
    enqueue_nothing(*second);
    ASSERT_TRUE(happens([&] { return counters::parks.value() > parks; }));
  }
  second->synchronize();
  first->synchronize();
  const Trace trace = tracing::stop();

  const auto records = of(trace, What::kEventRecord);
  const auto waits = of(trace, What::kEventWait);
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(records[0].stream, first->id());
  EXPECT_EQ(submission_of(records[0], trace).submits, What::kEventRecord);
  EXPECT_EQ(waits[0].device, 1);
  EXPECT_EQ(waits[0].stream, second->id());
  EXPECT_EQ(waits[0].other_device, 0);
  EXPECT_EQ(waits[0].other_stream, first->id());
  EXPECT_EQ(submission_of(waits[0], trace).submits, What::kEventWait);
  EXPECT_LE(waits[0].begin, records[0].begin);
  EXPECT_GE(waits[0].end, records[0].end);
}

TEST(Trace, AnOperationOutsideOfTheDeviceIsACommandUntilItEnds) {
  struct Operation : StreamOperation {
    Operation() : StreamOperation("test_outside") {}
    void begin() override { begun = true; }
    std::atomic<bool> begun{false};
  };
  static const OperationKernel kernel("test_outside_begin");
  const OwnStream stream;
  const auto operation = std::make_shared<Operation>();
  tracing::start(kEnough);
  openreg::enqueue(*stream, kernel, operation);
  ASSERT_TRUE(happens([&] { return operation->begun.load(); }));
  operation->end();
  stream->synchronize();
  const auto commands = of(tracing::stop(), What::kCommand);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_STREQ(commands[0].name, "test_outside_begin");
  EXPECT_STREQ(commands[1].name, "test_outside");
}

TEST(Trace, AWaitingHostIsASliceOfItsThread) {
  const OwnStream stream;
  tracing::start(kEnough);
  Blocker blocker(*stream);
  const SleepWatch asleep;
  std::thread opener([&] {
    EXPECT_TRUE(asleep.see());
    blocker.open();
  });
  stream->synchronize();
  opener.join();
  const auto waits = of(tracing::stop(), What::kHostWait);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_STREQ(waits[0].name, "Synchronize");
  EXPECT_LT(waits[0].begin, waits[0].end);
}

TEST(Trace, WorkCarriesTheOperationAndTheRangeOfTheThreadThatQueuedIt) {
  const OwnStream stream;
  tracing::start(kEnough);
  tracing::push_annotation(7);
  tracing::push_operation(1);
  tracing::push_operation(2);
  enqueue_nothing(*stream);
  tracing::pop_operation();
  tracing::pop_annotation();
  enqueue_nothing(*stream);
  tracing::pop_operation();
  tracing::pop_operation();  // of an operation that began before the recording
  enqueue_nothing(*stream);
  std::thread([&] { enqueue_nothing(*stream); }).join();
  stream->synchronize();
  const auto submissions = of(tracing::stop(), What::kSubmission);
  ASSERT_EQ(submissions.size(), 4u);
  const auto expect = [&](std::size_t i, std::uint64_t operation, std::uint64_t annotation) {
    EXPECT_EQ(submissions[i].operation, operation);
    EXPECT_EQ(submissions[i].annotation, annotation);
  };
  expect(0, 2, 7);
  expect(1, 1, 0);
  expect(2, 0, 0);
  expect(3, 0, 0);
}

TEST(Trace, OperationsThatARecordingDidNotSeeTheEndOfAreNotInTheNext) {
  const OwnStream stream;
  tracing::start(kEnough);
  tracing::push_operation(1);
  tracing::stop();
  tracing::start(kEnough);
  enqueue_nothing(*stream);
  stream->synchronize();
  const auto submissions = of(tracing::stop(), What::kSubmission);
  ASSERT_EQ(submissions.size(), 1u);
  EXPECT_EQ(submissions[0].operation, 0u);
}

TEST(Trace, AKernelSaysWhatItCopies) {
  static const Kernel copy("test_summary", [](const Kernel&, std::span<const std::byte>) {},
                           {.summarize = [](std::span<const std::byte> arguments) noexcept {
                             return CommandSummary{.kind = CommandSummary::Kind::kCopy,
                                                   .from = MemoryKind::kPinned,
                                                   .bytes = arguments.size()};
                           }});
  const OwnStream stream;
  const std::vector<std::byte> arguments(24);
  tracing::start(kEnough);
  stream->enqueue(copy, arguments);
  stream->synchronize();
  const Trace trace = tracing::stop();
  const auto command = of(trace, What::kCommand).at(0);
  EXPECT_EQ(command.summary.kind, CommandSummary::Kind::kCopy);
  EXPECT_EQ(command.summary.from, MemoryKind::kPinned);
  EXPECT_EQ(command.summary.to, MemoryKind::kDevice);
  EXPECT_EQ(command.summary.bytes, 24u);
  EXPECT_EQ(submission_of(command, trace).summary.bytes, 24u);
}

TEST(Trace, WhatTheHostRunsItselfIsOnItsThreadAndOnTheStream) {
  const OwnStream stream(1);
  tracing::start(kEnough);
  { const tracing::HostCommand traced({stream->device(), stream->id()}, "test_host"); }
  const Trace trace = tracing::stop();
  const auto commands = of(trace, What::kCommand);
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_STREQ(commands[0].name, "test_host");
  EXPECT_FALSE(commands[0].by_engine);
  EXPECT_EQ(commands[0].device, 1);
  EXPECT_EQ(submission_of(commands[0], trace).thread, commands[0].thread);
}

TEST(Trace, ThreadsMayLaunchAndRunWhileRecordingsBeginAndEnd) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&over, i] {
      const OwnStream stream(i % 2);
      while (!over) {
        tracing::push_operation(1);
        enqueue_nothing(*stream);
        tracing::pop_operation();
        stream->synchronize();
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    const auto before = tracing::now();
    tracing::start(1000);
    std::this_thread::yield();
    const Trace trace = tracing::stop();
    const auto after = tracing::now();
    for (const TraceSlice& slice : trace.slices) {
      EXPECT_GE(slice.begin, before);
      EXPECT_LE(slice.end, after);
    }
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Trace, AThreadWithoutMemoryForItsSlicesDropsThem) {
  tracing::start(kEnough);
  std::thread([] {
    const FailingMemory none;
    tracing::pop_operation();
    const tracing::ThreadSlice slice("a wait");
    EXPECT_NE(slice.id(), 0u);
  }).join();
  const Trace trace = tracing::stop();
  EXPECT_TRUE(trace.slices.empty());
  EXPECT_EQ(trace.dropped, 1u);
}

}  // namespace
}  // namespace openreg
