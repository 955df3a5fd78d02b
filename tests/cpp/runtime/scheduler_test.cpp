// Which thread runs which command, and when: engines, run slices, priorities.

#include "runtime/scheduler.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "base/settings.h"
#include "base/usable_cores.h"
#include "one_core.h"
#include "runtime/engine.h"
#include "runtime/event.h"
#include "runtime/stream_impl.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

// A command that submits itself again, until the end of the scope.
class EndlessStream {
 public:
  explicit EndlessStream(Priority priority = Priority::kNormal) : stream_(0, priority) { next(); }
  ~EndlessStream() {
    stop_ = true;
    stream_->synchronize();
    stream_->synchronize();  // the command that the last one has submitted
  }
  EndlessStream(const EndlessStream&) = delete;
  EndlessStream& operator=(const EndlessStream&) = delete;

  int steps() const { return steps_; }

 private:
  void next() {
    enqueue(*stream_, [this] {
      ++steps_;
      if (!stop_) next();
    });
  }

  const OwnStream stream_;
  std::atomic<bool> stop_{false};
  std::atomic<int> steps_{0};
};

TEST(Scheduler, EndlessStreamsAllAdvanceThoughThereAreMoreOfThemThanEngines) {
  const auto streams = static_cast<std::size_t>(settings().engines) + 2;
  std::vector<std::unique_ptr<EndlessStream>> endless;
  for (std::size_t i = 0; i < streams; ++i) endless.push_back(std::make_unique<EndlessStream>());
  for (const auto& stream : endless) {
    const int before = stream->steps();
    EXPECT_TRUE(happens([&] { return stream->steps() > before + 1000; }));
  }
}

TEST(Scheduler, AStreamOfHighPriorityIsTakenFirst) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  BusyEngines others(1);
  const OwnStream held;
  Blocker blocker(*held);
  const OwnStream low;
  const OwnStream high(0, Priority::kHigh);
  std::vector<char> order;  // one engine: commands do not overlap
  enqueue(*low, [&] { order.push_back('l'); });
  enqueue(*high, [&] { order.push_back('h'); });
  blocker.open();
  ASSERT_TRUE(happens([&] { return low->query() && high->query(); }));
  EXPECT_EQ(order, (std::vector<char>{'h', 'l'}));
}

TEST(Scheduler, AStreamOfHighPriorityInterruptsALowOneBetweenTwoCommands) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  BusyEngines others(1);
  const OwnStream low;
  const OwnStream high(0, Priority::kHigh);
  std::vector<char> order;
  Blocker blocker(*low);
  enqueue(*low, [&] { order.push_back('l'); });
  enqueue(*high, [&] { order.push_back('h'); });
  blocker.open();
  ASSERT_TRUE(happens([&] { return low->query() && high->query(); }));
  EXPECT_EQ(order, (std::vector<char>{'h', 'l'}));
}

TEST(Scheduler, AParkedStreamHoldsNoEngine) {
  BusyEngines others(1);
  ExternalEvent external;
  std::vector<std::unique_ptr<OwnStream>> parked;
  const auto parks = counters::parks.value();
  for (int i = 0; i < 10; ++i) {
    parked.push_back(std::make_unique<OwnStream>());
    external.wait(**parked.back());
  }
  EXPECT_TRUE(happens([&] { return counters::parks.value() == parks + 10; }));
  const OwnStream free;
  std::atomic<bool> ran{false};
  enqueue(*free, [&] { ran = true; });
  EXPECT_TRUE(happens([&] { return ran.load(); }));
  external.signal();
  for (const auto& stream : parked) (*stream)->synchronize();
}

// An engine that sleeps inside a command, for something that this test completes.
class NestedWait {
 public:
  NestedWait() {
    pending_.wait(*inner_);
    enqueue(
        *outer_,
        [this] {
          running_.open();
          go_.wait();
          inner_->synchronize();
        },
        waiting_kernel());
    running_.wait();
  }
  void fall_asleep() {
    const SleepWatch watch;
    go_.open();
    ASSERT_TRUE(watch.see());
  }
  void complete() {
    pending_.signal();
    outer_->synchronize();
  }

 private:
  const OwnStream outer_;
  const OwnStream inner_;
  ExternalEvent pending_;
  Gate running_;
  Gate go_;
};

std::vector<std::unique_ptr<NestedWait>> one_per_engine() {
  std::vector<std::unique_ptr<NestedWait>> waits;
  for (int i = 0; i < settings().engines; ++i) waits.push_back(std::make_unique<NestedWait>());
  return waits;
}

TEST(Scheduler, ASpareEngineDoesTheQueuedWorkOfOneThatSleepsInsideACommand) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  auto waits = one_per_engine();
  const OwnStream stream;
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });
  EXPECT_FALSE(ran);
  for (const auto& wait : waits) wait->fall_asleep();
  EXPECT_TRUE(happens([&] { return ran.load(); }));
  EXPECT_GE(counters::spares.value(), 1u);
  for (const auto& wait : waits) wait->complete();
}

TEST(Scheduler, ASpareEngineDoesTheWorkThatComesAfterTheOthersFellAsleep) {
  auto waits = one_per_engine();
  for (const auto& wait : waits) wait->fall_asleep();
  for (int i = 0; i < 10; ++i) {
    const OwnStream stream;
    std::atomic<bool> ran{false};
    enqueue(*stream, [&] { ran = true; });
    ASSERT_TRUE(happens([&] { return ran.load(); }));
  }
  for (const auto& wait : waits) wait->complete();
}

TEST(Scheduler, SparesDoNotPileUp) {
  for (int i = 0; i < 50; ++i) {
    NestedWait wait;
    wait.fall_asleep();
    const OwnStream stream;
    std::atomic<bool> ran{false};
    enqueue(*stream, [&] { ran = true; });
    ASSERT_TRUE(happens([&] { return ran.load(); }));
    wait.complete();
    // The number of engines that work at the same time never exceeds the wanted number.
    std::atomic<int> at_work{0};
    std::atomic<int> most{0};
    std::vector<std::unique_ptr<OwnStream>> streams;
    for (int s = 0; s < 4; ++s) {
      streams.push_back(std::make_unique<OwnStream>());
      enqueue(**streams.back(), [&] {
        const int now = ++at_work;
        if (now > most) most = now;
        --at_work;
      });
    }
    for (const auto& each : streams) ASSERT_TRUE(happens([&] { return (*each)->query(); }));
    ASSERT_LE(most, settings().engines);
  }
}

TEST(Scheduler, ARetiringEnginePassesItsCallOn) {
  OPENREG_NOT_AT_RANDOM("submissions would run commands that wait for the test");
  if (settings().engines != 2) GTEST_SKIP() << "needs two engines: one to retire, one to be called";
  for (int round = 0; round < 20; ++round) {
    // A host runs `inner`, so that its end wakes no engine.
    const OwnStream inner;
    Gate inner_runs;
    Gate inner_ends;
    std::thread host;
    {
      const BusyEngines busy;
      enqueue(*inner, [&] {
        inner_runs.open();
        inner_ends.wait();
      });
      host = std::thread([&] { inner->synchronize(); });
      inner_runs.wait();
    }
    // The first engine sleeps inside a command that lasts long.
    const OwnStream outer;
    Gate returned;
    Gate outer_ends;
    const SleepWatch watch;
    enqueue(*outer, [&] {
      inner->synchronize();
      returned.open();
      outer_ends.wait();
    });
    ASSERT_TRUE(watch.see());
    // The second one and a spare have worked, and sleep.
    {
      const OwnStream first;
      const OwnStream second;
      const Blocker busy_first(*first);
      const Blocker busy_second(*second);
    }
    // Now there is one too many. The one that is woken ends, and the other must be woken.
    inner_ends.open();
    returned.wait();
    const OwnStream stream;
    std::atomic<bool> ran{false};
    enqueue(*stream, [&] { ran = true; });
    ASSERT_TRUE(happens([&] { return ran.load(); }));
    outer_ends.open();
    host.join();
    outer->synchronize();
  }
}

TEST(CopyEngine, CopiesWhileAllOthersCompute) {
  const BusyEngines busy;
  const OwnStream stream;
  std::atomic<bool> ran{false};
  enqueue(
      *stream, [&] { ran = true; }, copy_kernel());
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST(CopyEngine, LeavesTheComputingToTheOthers) {
  const BusyEngines others(1);
  const OwnStream copies;
  const Blocker copying(*copies, copy_kernel());
  const OwnStream stream;
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] { ran = true; });
  EXPECT_TRUE(happens([&] { return ran.load(); }));
  EXPECT_FALSE(copies->query());
}

TEST(CopyEngine, TakesAStreamOverInTheMiddleAndGivesItBack) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const OwnStream stream;
  std::vector<int> order;  // one stream: commands do not overlap
  std::atomic<int> wrong_engine{0};
  constexpr int kCommands = 500;  // they fit into the queue, so the host does not help
  const auto add = [&](int number, EngineKind kind) {
    wrong_engine += this_engine() != kind;
    order.push_back(number);
  };
  for (int i = 0; i < kCommands; ++i) {
    if (i % 3 == 0) {
      enqueue(
          *stream, [&add, i] { add(i, EngineKind::kCopy); }, copy_kernel());
    } else {
      enqueue(*stream, [&add, i] { add(i, EngineKind::kCompute); });
    }
  }
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_EQ(wrong_engine, 0);
  ASSERT_EQ(order.size(), static_cast<std::size_t>(kCommands));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(CopyEngine, CopiesWhatWaitedForAnEvent) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const OwnStream stream;
  ExternalEvent ready;
  ready.wait(*stream);
  std::optional<EngineKind> engine;
  enqueue(
      *stream, [&] { engine = this_engine(); }, copy_kernel());
  ready.signal();
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_EQ(engine, EngineKind::kCopy);
}

// A stream on which the copy engine has copied.
class CopyStream {
 public:
  CopyStream() {
    enqueue(
        *stream_, [] {}, copy_kernel());
    EXPECT_TRUE(happens([&] { return stream_->query(); }));
  }

  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return &*stream_; }

 private:
  OwnStream stream_;
};

TEST(CopyEngine, RecordsAndWaitsBetweenCopiesWhileAllOthersCompute) {
  const CopyStream stream;
  ExternalEvent ready;
  Event begin;
  const BusyEngines busy;
  ready.wait(*stream);
  begin.record(*stream);
  EXPECT_FALSE(begin.query());
  ready.signal();
  EXPECT_TRUE(happens([&] { return begin.query(); }));
  std::atomic<bool> ran{false};
  enqueue(
      *stream, [&] { ran = true; }, copy_kernel());
  EXPECT_TRUE(happens([&] { return ran.load(); }));
}

TEST(CopyEngine, GivesAKernelBackThatComesBehindARecord) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const CopyStream stream;
  Event event;
  std::optional<EngineKind> engine;
  {
    const BusyEngines busy;
    event.record(*stream);
    ASSERT_TRUE(happens([&] { return event.query(); }));
    enqueue(*stream, [&] { engine = this_engine(); });
  }
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_EQ(engine, EngineKind::kCompute);
}

TEST(CopyEngine, AHostThatWaitsCopiesItself) {
  const OwnStream blocked;
  const OwnStream stream;
  const Blocker copying(*blocked, copy_kernel());
  bool on_engine = true;
  enqueue(
      *stream, [&] { on_engine = this_engine().has_value(); }, copy_kernel());
  stream->synchronize();
  EXPECT_FALSE(on_engine);
}

TEST(CopyEngine, IsReplacedWhileItSleepsInsideACommand) {
  const OwnStream outer;
  const OwnStream inner;
  ExternalEvent pending;
  pending.wait(*inner);
  const SleepWatch watch;
  enqueue(
      *outer, [&] { inner->synchronize(); }, copy_kernel());
  ASSERT_TRUE(watch.see());
  const OwnStream stream;
  std::atomic<bool> ran{false};
  enqueue(
      *stream, [&] { ran = true; }, copy_kernel());
  EXPECT_TRUE(happens([&] { return ran.load(); }));
  pending.signal();
  outer->synchronize();
}

TEST(Scheduler, EnginesTakeNoSignalsButThoseOfTheirOwnFaults) {
  const OwnStream stream;
  sigset_t mask;
  sigemptyset(&mask);
  std::atomic<bool> ran{false};
  enqueue(*stream, [&] {
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    ran = true;
  });
  ASSERT_TRUE(happens([&] { return ran.load(); }));
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM}) {
    EXPECT_EQ(sigismember(&mask, signal), 1) << signal;
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    EXPECT_EQ(sigismember(&mask, fault), 0) << fault;
  }
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0);
}

TEST(Scheduler, EnginesDoNotPreemptWhoWakesThem) {
  const OwnStream stream;
  std::atomic<int> policy{-1};
  enqueue(*stream, [&] { policy = sched_getscheduler(0); });
  ASSERT_TRUE(happens([&] { return policy != -1; }));
  EXPECT_EQ(policy, SCHED_BATCH);
}

// The engines are started by the confined thread, since each test has a process of its own.
TEST(Scheduler, AnEngineLeavesASingleCoreToTheHostForAMillisecond) {
  using Clock = std::chrono::steady_clock;
  if (counters::engines.value() != 0) GTEST_SKIP() << "other tests have started the engines";
  const OneCore confined;  // first: the settings keep the number of cores
  OPENREG_NEEDS_ENGINES("it measures when an engine begins");
  const OwnStream stream;
  enqueue_nothing(*stream);
  stream->synchronize();
  ASSERT_EQ(usable_cores(), 1);
  int early = 0;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the engine to fall asleep
    std::atomic<bool> ran{false};
    const auto begin = Clock::now();
    enqueue(*stream, [&] { ran = true; });
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const bool ran_early = ran;
    if (Clock::now() - begin < std::chrono::milliseconds(1) && ran_early) ++early;
    EXPECT_TRUE(happens([&] { return ran.load(); })) << "no host waits for it";
  }
  EXPECT_LT(early, 10);  // not 0: on a busy machine the engine may still own the stream
}

TEST(Scheduler, AStreamKnowsTheWorkThatItHasLeft) {
  const OwnStream stream;
  Gate begun, finish;
  enqueue(*stream,
          [&] {
            begun.open();
            finish.wait();
          },
          function_kernel(), {.nanoseconds = 5});
  begun.wait();
  enqueue(*stream, [] {}, function_kernel(), {.nanoseconds = 7});
  EXPECT_EQ(StreamImpl::of(*stream).queue.cost_left().count(), 12);
  finish.open();
  stream->synchronize();
  EXPECT_EQ(StreamImpl::of(*stream).queue.cost_left().count(), 0);
}

TEST(Scheduler, EnginesAreStartedWhenThereIsWorkForThem) {
  const auto wanted = static_cast<std::uint64_t>(settings().engines) + 1;  // one copies
  const auto spares = [] { return counters::spares.value(); };
  { const BusyEngines busy; }
  EXPECT_GE(counters::engines.value(), wanted);
  EXPECT_LE(counters::engines.value(), wanted + spares());
}

}  // namespace
}  // namespace openreg
