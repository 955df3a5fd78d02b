// The errors of commands.

#include "runtime/failure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/callbacks.h"
#include "runtime/command_error.h"
#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

void submit_failure(Stream& stream, const char* sentence) {
  enqueue(stream, [sentence] { throw std::runtime_error(sentence); });
}

TEST(Failure, LaterCommandsAreSkippedAndTheErrorIsRaisedOnce) {
  const OwnStream stream;
  bool skipped = true;
  submit_failure(*stream, "index 7 is out of bounds");
  enqueue(*stream, [&skipped] { skipped = false; });
  EXPECT_EQ(error_of([&] { stream->synchronize(); }),
            "openreg: test_function failed on openreg:0, stream " + std::to_string(stream->id()) +
                ": index 7 is out of bounds. Later work on that stream was skipped; set "
                "TORCH_OPENREG_STACKS=1 to report the line of the call, or "
                "TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call");
  EXPECT_TRUE(skipped);
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(Failure, TheStreamIsUsableAfterwards) {
  const OwnStream stream;
  for (int i = 0; i < 100; ++i) {
    submit_failure(*stream, "broken");
    EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
    bool ran = false;
    enqueue(*stream, [&ran] { ran = true; });
    EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
    EXPECT_TRUE(ran);
  }
}

TEST(Failure, CarriesWhatFailedWhereAndWhy) {
  const OwnStream stream(1);
  enqueue(*stream, [] { throw std::out_of_range("why"); });
  try {
    stream->synchronize();
    FAIL() << "nothing was thrown";
  } catch (const CommandError& error) {
    EXPECT_STREQ(error.kernel(), "test_function");
    EXPECT_EQ(error.device(), 1);
    EXPECT_EQ(error.stream(), stream->id());
    EXPECT_THROW(std::rethrow_exception(error.cause()), std::out_of_range);
  }
}

TEST(Failure, WhatIsNoStandardExceptionIsRaisedToo) {
  const OwnStream stream;
  enqueue(*stream, [] { throw 7; });
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }),
               ": an exception that is not a std::exception. ");
}

TEST(Failure, TheFirstOfAStreamIsKept) {
  const OwnStream stream;
  ExternalEvent external;
  submit_failure(*stream, "the first");
  external.wait(*stream);
  external.signal(std::make_exception_ptr(std::runtime_error("the second")));
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "the first");
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(Failure, OfTwoHostsOneGetsIt) {
  for (int round = 0; round < 100; ++round) {
    const OwnStream stream;
    Blocker blocker(*stream);
    submit_failure(*stream, "broken");
    std::atomic<int> raised{0};
    std::vector<std::thread> hosts;
    for (int i = 0; i < 2; ++i) {
      hosts.emplace_back([&] { raised += error_of([&] { stream->synchronize(); }) != "nothing"; });
    }
    blocker.open();
    for (auto& host : hosts) host.join();
    ASSERT_EQ(raised, 1);
  }
}

TEST(Failure, IsHandedOnByEventsAndRaisedByEachStream) {
  const OwnStream first;
  const OwnStream second;
  Event event;
  bool skipped = true;
  submit_failure(*first, "broken");
  event.record(*first);
  event.wait(*second);
  enqueue(*second, [&] { skipped = false; });
  EXPECT_PRED2(contains, error_of([&] { second->synchronize(); }),
               "failed on openreg:0, stream " + std::to_string(first->id()) + ": broken");
  EXPECT_TRUE(skipped);
  EXPECT_EQ(error_of([&] { second->synchronize(); }), "nothing");
  EXPECT_PRED2(contains, error_of([&] { first->synchronize(); }), "broken");
  EXPECT_EQ(error_of([&] { first->synchronize(); }), "nothing");
}

TEST(Failure, AnEventOfAPoisonedStreamHappensAndRaisesWhenItIsWaitedFor) {
  const OwnStream stream;
  Event event;
  submit_failure(*stream, "broken");
  event.record(*stream);
  EXPECT_TRUE(happens([&] { return event.is_complete(); }));
  EXPECT_TRUE(happens([&] { return stream->idle(); }));
  EXPECT_PRED2(contains, error_of([&] { event.synchronize(); }), "broken");
  EXPECT_EQ(error_of([&] { event.synchronize(); }), "nothing");
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(Failure, IsRaisedByWhoPollsTheStream) {
  const OwnStream stream;
  Blocker blocker(*stream);
  submit_failure(*stream, "broken");
  EXPECT_FALSE(stream->query());
  blocker.open();
  EXPECT_PRED2(contains, error_of([&] { EXPECT_TRUE(happens([&] { return stream->query(); })); }),
               "broken");
  EXPECT_TRUE(stream->query());
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(Failure, IsRaisedByWhoPollsAnEventBehindIt) {
  const OwnStream stream;
  Event before;
  Event behind;
  before.record(*stream);
  submit_failure(*stream, "broken");
  behind.record(*stream);
  EXPECT_TRUE(happens([&] { return before.query(); }));
  EXPECT_PRED2(contains, error_of([&] { EXPECT_TRUE(happens([&] { return behind.query(); })); }),
               "broken");
  EXPECT_TRUE(behind.query());
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(Failure, IsRaisedByWhoAsksForTheTimeOfAnEventBehindIt) {
  const OwnStream stream;
  Event begin(true);
  Event end(true);
  begin.record(*stream);
  submit_failure(*stream, "broken");
  end.record(*stream);
  ASSERT_TRUE(happens([&] { return end.is_complete(); }));
  EXPECT_PRED2(contains, error_of([&] { Event::elapsed_ms(begin, end); }), "broken");
  EXPECT_EQ(error_of([&] { Event::elapsed_ms(begin, end); }), "nothing");
}

TEST(Failure, StaysForItsOwnerWhereSomebodyElseDrains) {
  const OwnStream stream;
  submit_failure(*stream, "mine");
  stream->drain();
  EXPECT_TRUE(stream->idle());
  drain_device(0);
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "mine");
}

TEST(Failure, AnEventRaisesWhatFailedBeforeItOnly) {
  const OwnStream stream;
  Event event;
  event.record(*stream);
  submit_failure(*stream, "after the event");
  ASSERT_TRUE(happens([&] { return stream->idle(); }));
  EXPECT_EQ(error_of([&] { event.synchronize(); }), "nothing");
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "after the event");
}

TEST(Failure, AWaitOfAPoisonedStreamStillWaits) {
  const OwnStream stream;
  ExternalEvent external;
  submit_failure(*stream, "broken");
  external.wait(*stream);
  Event after;
  after.record(*stream);
  const auto parks = counters::parks.value();
  EXPECT_FALSE(after.query());
  external.signal();
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "broken");
  EXPECT_TRUE(after.query());
  EXPECT_GE(counters::parks.value(), parks);
}

TEST(Failure, DeviceSynchronizeRaisesTheOldestAndLeavesTheOthers) {
  const OwnStream first;
  const OwnStream second;
  const OwnStream third;
  const OwnStream elsewhere(1);
  const auto fail = [](Stream& stream, const char* sentence) {
    submit_failure(stream, sentence);
    ASSERT_TRUE(happens([&] { return stream.idle(); }));
  };
  fail(*second, "the oldest");
  fail(*first, "a later one");
  fail(*third, "the last one");
  submit_failure(*elsewhere, "another device's");
  EXPECT_PRED2(contains, error_of([] { synchronize_device(0); }), "the oldest");
  EXPECT_EQ(error_of([&] { second->synchronize(); }), "nothing");
  EXPECT_PRED2(contains, error_of([] { synchronize_device(0); }), "a later one");
  EXPECT_PRED2(contains, error_of([&] { third->synchronize(); }), "the last one");
  EXPECT_EQ(error_of([] { synchronize_device(0); }), "nothing");
  EXPECT_PRED2(contains, error_of([] { synchronize_device(1); }), "another device's");
}

TEST(Failure, OfADestroyedStreamIsTheDevicesAndNotTheNextUsers) {
  Stream& stream = create_stream(0);
  submit_failure(stream, "of the last user");
  ASSERT_TRUE(happens([&] { return stream.idle(); }));
  destroy_stream(stream);
  std::vector<Stream*> streams;
  do {
    streams.push_back(&create_stream(0));
  } while (streams.back() != &stream && streams.size() < 10'000);
  ASSERT_EQ(streams.back(), &stream);
  bool ran = false;
  enqueue(stream, [&] { ran = true; });
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "nothing");
  EXPECT_TRUE(ran);
  EXPECT_PRED2(contains, error_of([] { synchronize_device(0); }), "of the last user");
  for (Stream* const used : streams) destroy_stream(*used);
}

TEST(Failure, WaitingForRoomDoesNotRaiseIt) {
  const OwnStream stream;
  submit_failure(*stream, "broken");
  for (int i = 0; i < 5000; ++i) enqueue_nothing(*stream);
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "broken");
}

void call(Stream& stream, Function function) {
  Function* const key = Functions::get().put(std::move(function));
  stream.enqueue_and_wait(function_kernel(), std::as_bytes(std::span(&key, 1)));
}

void call_failure(Stream& stream, const char* sentence) {
  call(stream, [sentence] { throw std::runtime_error(sentence); });
}

TEST(Failure, OfACommandThatItsCallerWaitsForIsTheCallersAsItWasThrown) {
  const OwnStream stream;
  EXPECT_EQ(error_of([&] { call_failure(*stream, "bad dtype"); }), "bad dtype");
  bool ran = false;
  enqueue(*stream, [&ran] { ran = true; });
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
  EXPECT_TRUE(ran);
}

TEST(Failure, OfAnEarlierCommandIsRaisedByACallThatItMadeTheStreamSkip) {
  const OwnStream stream;
  bool ran = false;
  submit_failure(*stream, "earlier");
  EXPECT_PRED2(contains, error_of([&] { call(*stream, [&ran] { ran = true; }); }), "earlier");
  EXPECT_FALSE(ran);
  call(*stream, [&ran] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(Failure, OfACommandThatItsCallerWaitsForReachesOnlyTheCaller) {
  const OwnStream stream;
  constexpr int kCalls = 500;
  std::atomic<bool> done{false};
  std::atomic<int> innocent_errors{0};
  std::thread innocent([&] {
    while (!done) {
      if (error_of([&] { stream->synchronize(); }) != "nothing") ++innocent_errors;
    }
  });
  int caught = 0;
  for (int i = 0; i < kCalls; ++i) {
    enqueue_nothing(*stream);
    if (error_of([&] { call_failure(*stream, "mine"); }) == "mine") ++caught;
  }
  done = true;
  innocent.join();
  EXPECT_EQ(caught, kCalls);
  EXPECT_EQ(innocent_errors, 0);
}

TEST(Failure, HandedOnWithinADeviceIsRaisedByItOnce) {
  const OwnStream first;
  const OwnStream second;
  Event event;
  submit_failure(*first, "broken");
  event.record(*first);
  event.wait(*second);
  EXPECT_PRED2(contains, error_of([] { synchronize_device(0); }), "broken");
  EXPECT_EQ(error_of([] { synchronize_device(0); }), "nothing");
}

TEST(Failure, OfTwoDeviceSynchronizationsEachGetsOneOfTwo) {
  for (int round = 0; round < 100; ++round) {
    const OwnStream streams[2];
    for (const auto& stream : streams) submit_failure(*stream, "broken");
    std::atomic<int> raised{0};
    std::vector<std::thread> hosts;
    for (int i = 0; i < 3; ++i) {
      hosts.emplace_back([&] { raised += error_of([] { synchronize_device(0); }) != "nothing"; });
    }
    for (auto& host : hosts) host.join();
    ASSERT_EQ(raised, 2);
  }
}

TEST(Failure, OfACommandWhoseCallerWasInterruptedIsTheStreams) {
  struct Interrupted {};
  const OwnStream stream;
  static std::atomic<bool> interrupt;
  interrupt = true;
  install_callbacks({.check_interrupt = [] {
    if (interrupt.exchange(false)) throw Interrupted();
  }});
  ExternalEvent before;
  before.wait(*stream);
  EXPECT_THROW(call_failure(*stream, "abandoned"), Interrupted);
  before.signal();
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "abandoned");
}

TEST(Failure, ThatCanNoLongerBeCollectedIsPrinted) {
  const OwnStream stream;
  ExternalEvent external;
  submit_failure(*stream, "the first");
  external.wait(*stream);
  ::testing::internal::CaptureStderr();
  external.signal(std::make_exception_ptr(std::runtime_error("the second")));
  EXPECT_PRED2(contains, error_of([&] { stream->synchronize(); }), "the first");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "openreg: external event failed on openreg:0, stream " + std::to_string(stream->id()) +
                ": the second; no later call collected this error\n");
}

TEST(Failure, ACallFromACommandOfItsStreamIsRefused) {
  const OwnStream stream;
  std::string error;
  enqueue(*stream,
          [&] { error = error_of([&] { stream->enqueue_and_wait(empty_kernel(), {}); }); });
  stream->synchronize();
  EXPECT_EQ(error, "openreg: a command must not wait for its own stream");
}

}  // namespace
}  // namespace openreg
