#include "runtime/graph_exec.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "address_space/address_space.h"
#include "base/error.h"
#include "graph_helpers.h"
#include "runtime/command_error.h"
#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

std::shared_ptr<GraphExec> chain(Stream& stream, Log& log, int nodes) {
  return GraphExec::make(captured(stream, [&] {
    for (int i = 0; i < nodes; ++i) append(stream, log, i);
  }));
}

/// A fork of two lanes with a node each, and a join.
template <class Left, class Right>
std::shared_ptr<GraphExec> diamond(Stream& stream, Stream& side, const Left& left,
                                   const Right& right, Log& log) {
  return GraphExec::make(captured(stream, [&] {
    append(stream, log, 0);
    wait_stream(side, stream);
    call(side, right);
    call(stream, left);
    wait_stream(stream, side);
    append(stream, log, 9);
  }));
}

TEST(GraphExec, RunsItsNodesInOrderAsOftenAsItIsAskedTo) {
  const OwnStream stream;
  Log log;
  const auto exec = chain(*stream, log, 3);
  exec->enqueue(*stream);
  exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(GraphExec, HasItsPlaceAmongTheWorkOfTheStream) {
  const OwnStream stream;
  const OwnStream elsewhere;
  Log log;
  const auto exec = chain(*stream, log, 2);
  append(*elsewhere, log, -1);
  exec->enqueue(*elsewhere);
  append(*elsewhere, log, -2);
  elsewhere->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{-1, 0, 1, -2}));
}

TEST(GraphExec, RunsOnSeveralStreamsOneAfterTheOther) {
  const OwnStream stream;
  const OwnStream other;
  Log log;
  const auto exec = chain(*stream, log, 2);
  {
    const Blocker blocker(*stream);
    exec->enqueue(*stream);
    exec->enqueue(*other);
    EXPECT_FALSE(other->idle());
    EXPECT_TRUE(log.take().empty());
  }
  other->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1, 0, 1}));
}

TEST(GraphExec, PreparesEachNodeOnce) {
  static std::atomic<int> prepared{0};
  static std::atomic<int> runs{0};
  prepared = runs = 0;
  struct Counted final : PreparedCommand {
    void run() override { ++runs; }
  };
  static const Kernel kernel(
      "test_prepared", [](const Kernel&, std::span<const std::byte>) { FAIL(); },
      {.prepare = [](const Kernel&,
                     std::span<const std::byte>) -> std::unique_ptr<PreparedCommand> {
        ++prepared;
        return std::make_unique<Counted>();
      }});
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] { stream->enqueue(kernel, {}); }));
  for (int i = 0; i < 5; ++i) exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(runs, 5);
}

TEST(GraphExec, WritesTheCellsOfARunBeforeItsNodes) {
  auto& space = AddressSpace::get();
  void* const memory = space.map(0, std::size_t{2} << 20);
  ASSERT_NE(memory, nullptr);
  const OwnStream stream;
  std::vector<std::uint64_t> seen;
  const std::function<void()> look = [&] {
    std::array<std::uint64_t, 2> value{};
    std::memcpy(value.data(), space.aperture(memory), sizeof value);
    seen.insert(seen.end(), value.begin(), value.end());
  };
  const auto exec = GraphExec::make(captured(*stream, [&] { call(*stream, look); }));
  {
    const Blocker blocker(*stream);  // both are queued before either runs
    exec->enqueue(*stream, {{memory, {1, 2}}});
    exec->enqueue(*stream, {{memory, {3, 4}}});
  }
  stream->synchronize();
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  space.unmap(memory, std::size_t{2} << 20);
}

TEST(GraphExec, LanesRunSideBySideAndMeet) {
  if (settings().engines < 2) GTEST_SKIP() << "one engine runs one lane after the other";
  const OwnStream stream;
  const OwnStream side;
  Log log;
  Gate left_runs;
  Gate right_runs;
  const std::function<void()> left = [&] {
    left_runs.open();
    right_runs.wait();
    log.add(1);
  };
  const std::function<void()> right = [&] {
    right_runs.open();
    left_runs.wait();
    log.add(1);
  };
  const auto exec = diamond(*stream, *side, left, right, log);
  exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1, 1, 9}));
}

TEST(GraphExec, LanesOfRunsThatAreQueuedDoNotOvertake) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const std::function<void()> left = [&] { log.add(1); };
  const auto exec = diamond(*stream, *side, left, left, log);
  constexpr int kRuns = 50;
  for (int i = 0; i < kRuns; ++i) exec->enqueue(*stream);
  stream->synchronize();
  const auto numbers = log.take();
  ASSERT_EQ(numbers.size(), 4U * kRuns);
  for (std::size_t i = 0; i < numbers.size(); i += 4)
    EXPECT_EQ(std::vector<int>(numbers.begin() + i, numbers.begin() + i + 4),
              (std::vector<int>{0, 1, 1, 9}));
}

TEST(GraphExec, ALaneThatForksAtTheBeginningWaitsForTheStreamOfTheRun) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    wait_stream(*side, *stream);
    append(*side, log, 1);
    wait_stream(*stream, *side);
  }));
  {
    const Blocker blocker(*stream);
    exec->enqueue(*stream);
    append(*stream, log, 2);
  }
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{1, 2}));
}

TEST(GraphExec, ANodeThatFailsEndsTheRunAndFailsTheStreamOnce) {
  const OwnStream stream;
  Log log;
  bool fails = true;
  const std::function<void()> node = [&] {
    if (fails) throw std::runtime_error("no");
    log.add(1);
  };
  const auto exec = GraphExec::make(captured(*stream, [&] {
    append(*stream, log, 0);
    call(*stream, node);
    append(*stream, log, 2);
  }));
  exec->enqueue(*stream);
  const auto error = error_of([&] { stream->synchronize(); });
  EXPECT_PRED2(
      begins_with, error,
      "openreg: test_call failed on openreg:0, stream " + std::to_string(stream->id()) + ": no");
  EXPECT_EQ(log.take(), std::vector<int>{0});
  fails = false;
  exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1, 2}));
}

TEST(GraphExec, AFailureOnALaneIsTheFailureOfTheRunsStreamAlone) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  bool fails = true;
  const std::function<void()> left = [&] { log.add(1); };
  const std::function<void()> right = [&] {
    if (fails) throw std::runtime_error("no");
    log.add(1);
  };
  const auto exec = diamond(*stream, *side, left, right, log);
  exec->enqueue(*stream);
  EXPECT_THROW(stream->synchronize(), CommandError);
  drain_device(0);
  synchronize_device(0);  // it is on no other stream
  fails = false;
  log.take();
  exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1, 1, 9}));
}

TEST(GraphExec, APoisonedStreamSkipsTheRun) {
  const OwnStream stream;
  Log log;
  const auto exec = chain(*stream, log, 3);
  {
    const Blocker blocker(*stream);
    enqueue(*stream, [] { throw std::runtime_error("no"); });
    exec->enqueue(*stream);
  }
  EXPECT_THROW(stream->synchronize(), CommandError);
  EXPECT_TRUE(log.take().empty());
}

TEST(GraphExec, AWaitingHostTakesOverBetweenTwoNodes) {
  const OwnStream stream;
  std::vector<std::thread::id> threads;
  Gate begun;
  Gate host_sleeps;
  const std::function<void()> first = [&] {
    threads.push_back(std::this_thread::get_id());
    begun.open();
    host_sleeps.wait();
  };
  const std::function<void()> second = [&] { threads.push_back(std::this_thread::get_id()); };
  const auto exec = GraphExec::make(captured(*stream, [&] {
    call(*stream, first);
    call(*stream, second);
  }));
  exec->enqueue(*stream);
  begun.wait();  // an engine has it
  const SleepWatch watch;
  std::thread opener([&] {
    EXPECT_TRUE(watch.see());
    host_sleeps.open();
  });
  stream->synchronize();
  opener.join();
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(threads[1], std::this_thread::get_id());
}

TEST(GraphExec, MayGoWhileARunIsQueued) {
  const OwnStream stream;
  Log log;
  std::weak_ptr<GraphExec> gone;
  {
    const Blocker blocker(*stream);
    auto exec = chain(*stream, log, 2);
    exec->enqueue(*stream);
    gone = exec;
  }
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector<int>{0, 1}));
  EXPECT_TRUE(happens([&] { return gone.expired(); }));
}

TEST(GraphExec, AnEmptyOneDoesNothing) {
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [] {}));
  exec->enqueue(*stream);
  EXPECT_TRUE(stream->idle());
}

TEST(GraphExec, CopiesAreForTheCopyEngine) {
  const OwnStream stream;
  static std::vector<std::thread::id> threads;
  threads.clear();
  const auto note = [](const Kernel&, std::span<const std::byte>) {
    threads.push_back(std::this_thread::get_id());
  };
  static const Kernel copies("test_graph_copy", note, {.engine = EngineKind::kCopy});
  static const Kernel computes("test_graph_kernel", note);
  const auto exec = GraphExec::make(captured(*stream, [&] {
    stream->enqueue(computes, {});
    stream->enqueue(copies, {});
  }));
  exec->enqueue(*stream);
  ASSERT_TRUE(happens([&] { return stream->idle(); }));  // no host helps
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_NE(threads[0], threads[1]);
}

TEST(GraphExec, ThreadsLaunchItAtTheSameTime) {
  Log log;
  const OwnStream origin;
  const OwnStream side;
  const std::function<void()> node = [&] { log.add(1); };
  const auto exec = diamond(*origin, *side, node, node, log);
  constexpr int kThreads = 4;
  constexpr int kRuns = 25;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const OwnStream stream;
      for (int run = 0; run < kRuns; ++run) exec->enqueue(*stream);
      stream->synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  const auto numbers = log.take();
  ASSERT_EQ(numbers.size(), 4U * kThreads * kRuns);
  for (std::size_t i = 0; i < numbers.size(); i += 4)
    EXPECT_EQ(std::vector<int>(numbers.begin() + i, numbers.begin() + i + 4),
              (std::vector<int>{0, 1, 1, 9}));
}

}  // namespace
}  // namespace openreg
