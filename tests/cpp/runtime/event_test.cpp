#include "runtime/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "stream_helpers.h"

namespace openreg {
namespace {

using testing::Blocker;
using testing::error_of;
using testing::OwnStream;
using testing::submit;

TEST(Event, IsDoneAndNoWaitBeforeItWasRecorded) {
  const OwnStream stream;
  Event event;
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.version(), 0u);
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
  submit(*first, [&] { happened = true; });
  event.record(*first);
  EXPECT_EQ(event.version(), 1u);
  EXPECT_EQ(event.device(), 0);
  event.wait(*second);
  submit(*second, [&] { ordered = happened; });
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(second->query());
  blocker.open();
  second->synchronize();
  EXPECT_TRUE(ordered);
  EXPECT_TRUE(event.query());
}

TEST(Event, AWaiterOfAnEarlierRecordIsNotMovedByALaterOne) {
  const OwnStream slow;
  const OwnStream quick;
  const OwnStream waiting;
  Event event;
  std::atomic<bool> happened{false};
  bool ordered = false;
  Blocker blocker(*slow);
  submit(*slow, [&] { happened = true; });
  event.record(*slow);
  event.wait(*waiting);
  submit(*waiting, [&] { ordered = happened; });
  event.record(*quick);
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(waiting->query());
  blocker.open();
  waiting->synchronize();
  EXPECT_TRUE(ordered);
}

TEST(Event, AnErrorIsHandedOnToTheStreamsThatWait) {
  const OwnStream first;
  const OwnStream second;
  Event event;
  bool skipped = true;
  submit(*first, [] { throw std::runtime_error("broken"); });
  event.record(*first);
  event.wait(*second);
  submit(*second, [&] { skipped = false; });
  EXPECT_NE(error_of([&] { second->synchronize(); }).find("broken"), std::string::npos);
  EXPECT_TRUE(skipped);
  EXPECT_TRUE(event.query());
  EXPECT_NE(error_of([&] { event.synchronize(); }).find("broken"), std::string::npos);
  EXPECT_EQ(error_of([&] { event.synchronize(); }), "nothing");
  EXPECT_EQ(error_of([&] { first->synchronize(); }), "nothing");
}

TEST(Event, ElapsedTimeIsBetweenTheRecords) {
  const OwnStream stream;
  Event start(true);
  Event end(true);
  start.record(*stream);
  end.record(*stream);
  stream->synchronize();
  EXPECT_GE(Event::elapsed_ms(start, end), 0.0);
  EXPECT_DOUBLE_EQ(Event::elapsed_ms(start, end), -Event::elapsed_ms(end, start));
}

TEST(ExternalEvent, ReleasesTheStreamsThatWait) {
  const OwnStream stream;
  ExternalEvent external;
  bool ran = false;
  external.wait(*stream);
  submit(*stream, [&] { ran = true; });
  EXPECT_FALSE(stream->query());
  external.signal();
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST(ExternalEvent, AnErrorPoisonsTheStreamsThatWait) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  external.signal(std::make_exception_ptr(std::runtime_error("peer is gone")));
  EXPECT_NE(error_of([&] { stream->synchronize(); }).find("external event failed on openreg:0"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

}  // namespace
}  // namespace openreg
