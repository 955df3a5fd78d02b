#include "runtime/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

constexpr std::uint64_t kBound = 1024;

TEST(Stream, CommandsRunInTheOrderOfSubmission) {
  const OwnStream stream;
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) enqueue(*stream, [&order, i] { order.push_back(i); });
  stream->synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Stream, ACommandSeesItsArgumentsAlignedAndUnchanged) {
  static std::vector<std::byte> seen;
  static bool aligned;
  static const Kernel kernel(
      "stream_test_arguments", [](const Kernel&, std::span<const std::byte> arguments) {
        seen.assign(arguments.begin(), arguments.end());
        aligned = reinterpret_cast<std::uintptr_t>(arguments.data()) % 16 == 0;
      });
  const OwnStream stream;
  for (const std::size_t size : {0, 1, 15, 16, 17, 991, 992, 993, 1000, 1024, 16'000, 1'000'000}) {
    std::vector<std::byte> arguments(size);
    for (std::size_t i = 0; i < size; ++i) arguments[i] = static_cast<std::byte>(i * 7);
    stream->enqueue(kernel, arguments);
    const auto copy = arguments;
    std::ranges::fill(arguments, std::byte{0});  // they were copied
    stream->synchronize();
    EXPECT_EQ(seen, copy) << size;
    EXPECT_TRUE(aligned) << size;
  }
}

TEST(Stream, CommandsOfAllSizesShareAQueue) {
  static int wrong;
  static const Kernel kernel("stream_test_sizes",
                             [](const Kernel&, std::span<const std::byte> arguments) {
                               for (const std::byte byte : arguments)
                                 wrong += byte != static_cast<std::byte>(arguments.size());
                             });
  wrong = 0;
  const OwnStream stream;
  std::size_t size = 1;
  for (int i = 0; i < 400; ++i) {
    size = size * 7919 % 40'009;  // within its place and outside
    stream->enqueue(kernel, std::vector<std::byte>(size, static_cast<std::byte>(size)));
  }
  stream->synchronize();
  EXPECT_EQ(wrong, 0);
}

TEST(Stream, QueryIsFalseWhileACommandIsQueuedOrRuns) {
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
  EXPECT_EQ(default_stream(1).priority(), Priority::kNormal);
}

TEST(Stream, ADeviceThatDoesNotExistIsRefused) {
  const std::string sentence = "openreg: device index out of range (got 2, expected 0 to 1)";
  EXPECT_EQ(error_of([] { default_stream(2); }), sentence);
  EXPECT_EQ(error_of([] { create_stream(2); }), sentence);
  EXPECT_EQ(error_of([] { synchronize_device(2); }), sentence);
  EXPECT_EQ(error_of([] { default_stream(-1); }),
            "openreg: device index out of range (got -1, expected 0 to 1)");
}

TEST(Stream, AStreamIsFoundByItsIdUntilItIsDestroyed) {
  Stream& stream = create_stream(1, Priority::kHigh);
  EXPECT_EQ(stream.device(), 1);
  EXPECT_EQ(stream.priority(), Priority::kHigh);
  EXPECT_EQ(&find_stream(1, stream.id()), &stream);
  EXPECT_EQ(&find_stream(1, 0), &default_stream(1));
  destroy_stream(stream);
  EXPECT_EQ(error_of([&] { find_stream(1, stream.id()); }),
            "openreg:1 has no such stream (got " + std::to_string(stream.id()) +
                ", expected the id of a stream that has not been destroyed)");
  EXPECT_NE(error_of([] { find_stream(1, 1'000'000); }), "nothing");
  EXPECT_NE(error_of([] { find_stream(1, -1); }), "nothing");
}

TEST(Stream, FireAndForgetWorkRunsWithoutAnyWait) {
  const OwnStream stream;
  std::atomic<int> ran{0};
  for (int round = 1; round <= 100; ++round) {
    for (int i = 0; i < 10; ++i) enqueue(*stream, [&ran] { ++ran; });
    ASSERT_TRUE(happens([&] { return stream->query(); }));
    ASSERT_EQ(ran, 10 * round);
  }
}

TEST(Stream, AHundredThousandLaunchesGoThroughTheBoundedQueue) {
  const OwnStream stream;
  std::uint64_t ran = 0;
  for (int i = 0; i < 100'000; ++i) enqueue(*stream, [&ran] { ++ran; });
  stream->synchronize();
  EXPECT_EQ(ran, 100'000u);
}

TEST(Stream, AHundredThousandLaunchesGoThroughAStreamThatIsParkedMeanwhile) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  std::uint64_t ran = 0;
  std::atomic<std::uint64_t> submitted{0};
  const SleepWatch watch;
  std::thread producer([&] {
    for (int i = 0; i < 100'000; ++i) {
      enqueue(*stream, [&ran] { ++ran; });
      ++submitted;
    }
  });
  EXPECT_TRUE(watch.see());
  EXPECT_EQ(submitted, kBound - 1);  // the wait is a command too
  external.signal();
  producer.join();
  stream->synchronize();
  EXPECT_EQ(ran, 100'000u);
}

TEST(Stream, ManyThreadsSubmitToOneStream) {
  constexpr int kThreads = 8;
  constexpr int kCommands = 2500;
  const OwnStream stream;
  std::array<int, kThreads> next{};  // not atomic: commands of one stream never overlap
  bool ordered = true;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCommands; ++i) {
        enqueue(*stream, [&, t, i] { ordered = ordered && next[t]++ == i; });
      }
      stream->synchronize();
      EXPECT_EQ(next[t], kCommands);
    });
  }
  for (auto& thread : threads) thread.join();
  stream->synchronize();
  EXPECT_TRUE(ordered);
}

TEST(Stream, AThousandStreamsAreCreatedUsedAndDestroyed) {
  std::atomic<int> ran{0};
  std::set<Stream*> streams;
  for (int i = 0; i < 1000; ++i) {
    Stream& stream = create_stream(i % 2);
    streams.insert(&stream);
    enqueue(stream, [&ran] { ++ran; });
  }
  EXPECT_EQ(streams.size(), 1000u);  // all live streams are distinct
  for (Stream* const stream : streams) destroy_stream(*stream);
  synchronize_device(0);
  synchronize_device(1);
  EXPECT_EQ(ran, 1000);
}

TEST(Stream, ADestroyedStreamRunsWhatItHasAndTakesNoMore) {
  Stream& stream = create_stream(0);
  Blocker blocker(stream);
  std::atomic<bool> ran{false};
  enqueue(stream, [&ran] { ran = true; });
  destroy_stream(stream);
  destroy_stream(stream);  // has no effect
  EXPECT_EQ(error_of([&] { enqueue_nothing(stream); }),
            "openreg: stream " + std::to_string(stream.id()) +
                " of openreg:0 has been destroyed; it accepts no more work");
  blocker.open();
  EXPECT_TRUE(happens([&] { return stream.query(); }));
  EXPECT_TRUE(ran);
}

TEST(Stream, ADestroyedStreamServesAgainOnlyWhenItIsDrained) {
  Stream& stream = create_stream(0, Priority::kHigh);
  Blocker blocker(stream);
  destroy_stream(stream);
  const OwnStream other(0, Priority::kHigh);
  EXPECT_NE(&*other, &stream);
  blocker.open();
  ASSERT_TRUE(happens([&] { return stream.query(); }));
  std::vector<Stream*> streams;
  do {
    streams.push_back(&create_stream(0, Priority::kHigh));
  } while (streams.back() != &stream && streams.size() < 10'000);
  EXPECT_EQ(streams.back(), &stream);
  bool ran = false;
  enqueue(stream, [&ran] { ran = true; });
  stream.synchronize();
  EXPECT_TRUE(ran);
  for (Stream* const used : streams) destroy_stream(*used);
}

TEST(Stream, TheDefaultStreamCannotBeDestroyed) {
  destroy_stream(default_stream(0));
  bool ran = false;
  enqueue(default_stream(0), [&ran] { ran = true; });
  default_stream(0).synchronize();
  EXPECT_TRUE(ran);
}

TEST(Stream, DeviceSynchronizeWaitsForAllStreamsOfTheDeviceAndNoOther) {
  const OwnStream elsewhere(1);
  Blocker busy(*elsewhere);
  std::atomic<int> ran{0};
  std::vector<std::unique_ptr<OwnStream>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<OwnStream>(0));
    enqueue(**streams.back(), [&ran] { ++ran; });
  }
  synchronize_device(0);
  EXPECT_EQ(ran, 5);
  EXPECT_FALSE(elsewhere->query());
}

TEST(Stream, DeviceSynchronizeDoesNotWaitForWhatIsSubmittedMeanwhile) {
  const OwnStream first;
  const OwnStream second;
  Blocker held(*first);
  enqueue_nothing(*second);
  const SleepWatch watch;
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    synchronize_device(0);
    returned = true;
  });
  ASSERT_TRUE(watch.see());
  Gate never_before_the_waiter_returns;
  enqueue(
      *second, [&] { never_before_the_waiter_returns.wait(); }, waiting_kernel());
  held.open();
  EXPECT_TRUE(happens([&] { return returned.load(); }));
  never_before_the_waiter_returns.open();
  waiter.join();
  second->synchronize();
}

}  // namespace
}  // namespace openreg
