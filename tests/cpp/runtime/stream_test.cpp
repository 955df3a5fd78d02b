#include "runtime/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "stream_helpers.h"

namespace openreg {
namespace {

using testing::Blocker;
using testing::error_of;
using testing::OwnStream;
using testing::submit;
using testing::submit_nothing;

TEST(Stream, CommandsRunInTheOrderOfSubmission) {
  const OwnStream stream;
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) submit(*stream, [&order, i] { order.push_back(i); });
  stream->synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Stream, QueryIsFalseWhileACommandRuns) {
  const OwnStream stream;
  EXPECT_TRUE(stream->query());
  Blocker blocker(*stream);
  EXPECT_FALSE(stream->query());
  blocker.open();
  stream->synchronize();
  EXPECT_TRUE(stream->query());
}

TEST(Stream, DefaultStreamsAreOnePerDeviceWithIdZero) {
  EXPECT_EQ(&default_stream(1), &default_stream(1));
  EXPECT_NE(&default_stream(0), &default_stream(1));
  EXPECT_EQ(default_stream(1).id(), 0);
  EXPECT_EQ(default_stream(1).device(), 1);
  EXPECT_EQ(error_of([] { default_stream(2); }),
            "openreg: device index out of range (got 2, expected 0 to 1)");
}

TEST(Stream, AStreamIsFoundByItsIdUntilItIsDestroyed) {
  Stream& stream = create_stream(1, Priority::kHigh);
  EXPECT_EQ(stream.priority(), Priority::kHigh);
  EXPECT_EQ(&find_stream(1, stream.id()), &stream);
  destroy_stream(stream);
  EXPECT_EQ(error_of([&] { find_stream(1, stream.id()); }),
            "openreg: openreg:1 has no such stream (got " + std::to_string(stream.id()) +
                ", expected the id of a stream that has not been destroyed)");
}

TEST(Stream, FireAndForgetWorkRunsWithoutAnyWait) {
  const OwnStream stream;
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) submit(*stream, [&ran] { ++ran; });
  testing::wait_until([&] { return stream->query(); });
  EXPECT_EQ(ran, 100);
}

TEST(Stream, AHundredThousandLaunchesGoThroughTheBoundedQueue) {
  const OwnStream stream;
  std::uint64_t ran = 0;
  for (int i = 0; i < 100'000; ++i) submit(*stream, [&ran] { ++ran; });
  stream->synchronize();
  EXPECT_EQ(ran, 100'000u);
}

TEST(Stream, ManyThreadsSubmitToOneStream) {
  const OwnStream stream;
  std::uint64_t ran = 0;  // not atomic: commands of one stream never overlap
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) submit(*stream, [&ran] { ++ran; });
      stream->synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ran, 20'000u);
}

TEST(Stream, AThousandStreamsAreCreatedUsedAndDestroyed) {
  std::atomic<int> ran{0};
  std::vector<Stream*> streams;
  for (int i = 0; i < 1000; ++i) {
    streams.push_back(&create_stream(i % 2));
    submit(*streams.back(), [&ran] { ++ran; });
  }
  for (Stream* const stream : streams) destroy_stream(*stream);
  synchronize_device(0);
  synchronize_device(1);
  EXPECT_EQ(ran, 1000);
}

TEST(Stream, AThrowingCommandSkipsLaterOnesAndIsRaisedOnce) {
  const OwnStream stream;
  bool skipped = true;
  submit(*stream, [] { throw std::runtime_error("index 7 is out of bounds"); });
  submit(*stream, [&skipped] { skipped = false; });
  EXPECT_EQ(error_of([&] { stream->synchronize(); }),
            "openreg: test_function failed on openreg:0, stream " + std::to_string(stream->id()) +
                ": index 7 is out of bounds. Later work of that stream was skipped; set "
                "TORCH_OPENREG_LAUNCH_BLOCKING=1 to stop at the call");
  EXPECT_TRUE(skipped);
  bool ran = false;
  submit(*stream, [&ran] { ran = true; });
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
  EXPECT_TRUE(ran);
}

TEST(Stream, ACommandMustNotWaitForItsOwnStream) {
  const OwnStream stream;
  submit(*stream, [&] { stream->synchronize(); });
  EXPECT_NE(error_of([&] {
              stream->synchronize();
            }).find("openreg: a command must not wait for its own stream"),
            std::string::npos);
}

TEST(Stream, ACommandSubmitsBeyondTheBoundToItsOwnStream) {
  const OwnStream stream;
  std::atomic<int> ran{0};
  submit(*stream, [&] {
    for (int i = 0; i < 5000; ++i) submit(*stream, [&ran] { ++ran; });
  });
  stream->synchronize();
  stream->synchronize();
  EXPECT_EQ(ran, 5000);
}

TEST(Stream, ACommandWaitsForAnotherStreamThoughEveryEngineIsBusy) {
  const OwnStream outer;
  const OwnStream inner;
  std::atomic<bool> ran{false};
  bool seen = false;
  submit(*outer, [&] {
    submit(*inner, [&ran] { ran = true; });
    inner->synchronize();
    seen = ran;
  });
  testing::wait_until([&] { return outer->query(); });
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace openreg
