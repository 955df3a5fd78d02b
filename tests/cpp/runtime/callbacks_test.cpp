#include "runtime/callbacks.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "at_point.h"
#include "runtime/command.h"
#include "runtime/event.h"
#include "runtime/run_slice.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

// What the callbacks observed, on the thread that runs the test.
struct Seen {
  std::vector<std::string> calls;
};
std::atomic<Seen*> g_seen{nullptr};
std::atomic<std::thread::id> g_thread;
std::atomic<int> g_engine_slices{0};
std::atomic<int> g_turns_now{0};
std::function<void()> g_check;  // of g_thread only
std::atomic<bool> g_checking{false};
std::atomic<bool> g_runs_when_full{true};
Callbacks::RunSliceStart g_beginning{};  // of g_thread only
int g_state = 0;

void note(const char* call) {
  Seen* const seen = g_seen;
  if (seen && std::this_thread::get_id() == g_thread) seen->calls.emplace_back(call);
}

// Callbacks cannot be removed; these do nothing until a test enables them.
void install() {
  Callbacks callbacks;
  callbacks.enter_commands = [](const Callbacks::RunSliceStart& slice) -> void* {
    if (slice.engine) ++g_engine_slices;
    ++g_turns_now;
    if (std::this_thread::get_id() == g_thread) g_beginning = slice;
    note(slice.engine ? "enter as an engine" : "enter");
    return &g_state;
  };
  callbacks.leave_commands = [](void* state) noexcept {
    note(state == &g_state ? "leave" : "leave with another state");
    --g_turns_now;
  };
  callbacks.begin_wait = []() -> void* {
    note(in_command() ? "begin nested wait" : "begin wait");
    return &g_thread;
  };
  callbacks.end_wait = [](void* state) noexcept {
    note(state == &g_thread ? "end wait" : "end wait with another state");
  };
  callbacks.runs_when_full = []() -> bool { return g_runs_when_full; };
  callbacks.check_interrupt = [] {
    if (g_checking && std::this_thread::get_id() == g_thread) g_check();
  };
  install_callbacks(callbacks);
}

class CallbacksTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    default_stream(0);  // an engine runs before the callbacks are installed
    Blocker(default_stream(0));
    install();
    synchronize_device(0);
  }
  void SetUp() override {
    g_thread = std::this_thread::get_id();
    g_seen = &seen_;
  }
  void TearDown() override {
    g_seen = nullptr;
    g_checking = false;
    g_runs_when_full = true;
  }

  static void check_with(std::function<void()> check) {
    g_check = std::move(check);
    g_checking = true;
  }

  std::vector<std::string>& calls() { return seen_.calls; }

 private:
  Seen seen_;
};

using Calls = std::vector<std::string>;

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

TEST_F(CallbacksTest, AWaitOnAnIdleStreamCallsNone) {
  OPENREG_NEEDS_ENGINES("a query calls them, too");
  const OwnStream stream;
  stream->synchronize();
  synchronize_device(0);
  Event event;
  event.record(*stream);
  ASSERT_TRUE(happens([&] { return event.query(); }));
  event.synchronize();
  EXPECT_EQ(calls(), Calls());
}

TEST_F(CallbacksTest, AHostsTurnBeginsWithWhatIsLeftToDoAndHowLongTheHostWasAway) {
  OPENREG_NOT_AT_RANDOM("submissions run some of the commands");
  const BusyEngines busy;
  const OwnStream stream;
  enqueue_nothing(*stream);
  stream->synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (int i = 0; i < 3; ++i) enqueue(*stream, [] {}, function_kernel(), {.nanoseconds = 1000});
  stream->synchronize();
  EXPECT_FALSE(g_beginning.engine);
  EXPECT_EQ(g_beginning.left.count(), 3000);
  EXPECT_EQ(g_beginning.before.launched.count(), 3000);
  EXPECT_GE(g_beginning.before.away, std::chrono::milliseconds(2));
}

TEST_F(CallbacksTest, AHostEntersAndLeavesTheCleanStateOncePerTurn) {
  OPENREG_NOT_AT_RANDOM("each command is a turn of its own");
  const BusyEngines busy;
  const OwnStream stream;
  for (int i = 0; i < 3; ++i) enqueue(*stream, [] { note("command"); });
  stream->synchronize();
  EXPECT_EQ(calls(),
            (Calls{"begin wait", "enter", "command", "command", "command", "leave", "end wait"}));
}

TEST_F(CallbacksTest, AnEngineEntersTheCleanStateThoughItWasStartedBefore) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const OwnStream stream;
  // An engine may still linger on this stream object, which was used before.
  ASSERT_TRUE(happens([] { return g_turns_now == 0; }));
  const int before = g_engine_slices;
  std::atomic<int> during{0};
  enqueue(*stream, [&] { during = g_engine_slices.load(); });
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_GT(during, before);
}

TEST_F(CallbacksTest, TheCleanStateIsLeftWhenACommandThrows) {
  OPENREG_NOT_AT_RANDOM("submissions wait, too");
  const BusyEngines busy;
  const OwnStream stream;
  enqueue(*stream, [] { throw std::runtime_error("broken"); });
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_EQ(calls(), (Calls{"begin wait", "enter", "leave", "end wait"}));
}

TEST_F(CallbacksTest, ANestedWaitIsAWaitOfItsOwn) {
  OPENREG_NOT_AT_RANDOM("submissions wait, too");
  const BusyEngines busy;
  const OwnStream outer;
  const OwnStream inner;
  enqueue(*outer, [&] {
    enqueue(*inner, [] { note("command"); });
    inner->synchronize();
  });
  outer->synchronize();
  EXPECT_EQ(calls(), (Calls{"begin wait", "enter", "begin nested wait", "enter", "command", "leave",
                            "end wait", "leave", "end wait"}));
}

// The number of commands that ran on this thread while it launched more than the queue holds.
int commands_run_for_room(Stream& stream) {
  constexpr int kCommands = 5000;
  std::atomic<int> here{0};
  std::atomic<int> all{0};
  const SleepWatch sleep;
  Blocker blocker(stream);
  std::thread opener([&] {
    EXPECT_TRUE(sleep.see());
    blocker.open();
  });
  for (int i = 0; i < kCommands; ++i) {
    enqueue(stream, [&] {
      if (std::this_thread::get_id() == g_thread) ++here;
      ++all;
    });
  }
  opener.join();
  const int run = here;
  stream.synchronize();
  EXPECT_EQ(all, kCommands);
  return run;
}

TEST_F(CallbacksTest, AProducerWithoutRoomWorksOrSleepsAsTheCallbackSays) {
  OPENREG_NEEDS_ENGINES("a producer without room always works");
  const OwnStream stream;
  EXPECT_GT(commands_run_for_room(*stream), 0);
  g_runs_when_full = false;
  EXPECT_EQ(commands_run_for_room(*stream), 0);
}

TEST_F(CallbacksTest, AnInterruptEndsASleepForRoom) {
  const OwnStream stream;
  Blocker blocker(*stream);
  g_runs_when_full = false;
  check_with([] { throw Interrupted(); });
  int submitted = 0;
  std::atomic<int> ran{0};
  EXPECT_THROW(
      {
        for (;; ++submitted) enqueue(*stream, [&] { ++ran; });
      },
      Interrupted);
  g_checking = false;
  blocker.open();
  stream->synchronize();
  EXPECT_EQ(ran, submitted);
}

TEST_F(CallbacksTest, AnInterruptEndsASleepAndTheQueueStaysIntact) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  bool ran = false;
  enqueue(*stream, [&] { ran = true; });
  check_with([] { throw Interrupted(); });
  EXPECT_THROW(stream->synchronize(), Interrupted);
  EXPECT_EQ(calls().front(), "begin wait");
  EXPECT_EQ(calls().back(), "end wait");
  EXPECT_FALSE(stream->query());
  external.signal();
  g_checking = false;
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(CallbacksTest, AnInterruptedWaiterGivesBackTheStreamThatItWasHanded) {
  const OwnStream stream;
  Blocker blocker(*stream);
  std::atomic<bool> ran{false};
  Gate interrupted;
  enqueue(*stream, [&] {
    interrupted.wait();
    ran = true;
  });
  // The host has slept long enough and is about to check for an interrupt. Meanwhile the engine
  // reaches the end of its command, and hands the stream over.
  const AtPoint point(TestPoint::kWithdrawing, [&] {
    const auto grants = counters::grants.value();
    blocker.open();
    EXPECT_TRUE(happens([&] { return counters::grants.value() > grants; }));
  });
  check_with([] { throw Interrupted(); });
  EXPECT_THROW(stream->synchronize(), Interrupted);
  interrupted.open();
  EXPECT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_TRUE(ran);
}

TEST_F(CallbacksTest, AnInterruptEndsAWaitForRoom) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  int submitted = 0;
  int ran = 0;
  check_with([] { throw Interrupted(); });
  EXPECT_THROW(
      {
        while (true) {
          enqueue(*stream, [&] { ++ran; });
          ++submitted;
        }
      },
      Interrupted);
  EXPECT_EQ(submitted, 1023);
  g_checking = false;
  external.signal();
  stream->synchronize();
  EXPECT_EQ(ran, submitted);  // the one that was interrupted was not submitted
}

TEST_F(CallbacksTest, AnInterruptEndsHelpingBetweenTwoCommands) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  BusyEngines busy;
  const OwnStream stream;
  // Longer than the time between two checks.
  enqueue(*stream, [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
    while (std::chrono::steady_clock::now() < end) {
    }
  });
  std::thread::id later;
  enqueue(*stream, [&] { later = std::this_thread::get_id(); });
  check_with([] {
    EXPECT_FALSE(in_command());
    throw Interrupted();
  });
  EXPECT_THROW(stream->synchronize(), Interrupted);
  EXPECT_FALSE(stream->query());
  busy.open();
  ASSERT_TRUE(happens([&] { return stream->query(); }));
  EXPECT_NE(later, std::thread::id());
  EXPECT_NE(later, g_thread);
}

TEST_F(CallbacksTest, ASignalIsAskedAboutAtOnce) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  struct sigaction before;
  sigaction(SIGUSR1, &action, &before);
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  // Without the signals each check would take 50 ms of sleep.
  constexpr int kQuestions = 60;
  int questions = 0;
  check_with([&] {
    if (++questions == kQuestions) throw Interrupted();
  });
  std::atomic<bool> returned{false};
  const pthread_t waiting = pthread_self();
  std::thread sender([&] {
    while (!returned) {
      pthread_kill(waiting, SIGUSR1);
      std::this_thread::yield();
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(stream->synchronize(), Interrupted);
  const auto time = std::chrono::steady_clock::now() - begin;
  returned = true;
  sender.join();
  EXPECT_LT(time, std::chrono::milliseconds(50) * kQuestions / 2);
  sigaction(SIGUSR1, &before, nullptr);
  g_checking = false;
  external.signal();
  stream->synchronize();
}

TEST_F(CallbacksTest, AHandlerMayUseTheStreamThatIsWaitedFor) {
  const OwnStream stream;
  ExternalEvent external;
  external.wait(*stream);
  bool ran = false;
  int questions = 0;
  check_with([&] {
    if (++questions > 1) return;
    external.signal();
    enqueue(*stream, [&] { ran = true; });
    stream->synchronize();
  });
  stream->synchronize();
  EXPECT_TRUE(ran);
  EXPECT_GE(questions, 1);
}

TEST_F(CallbacksTest, ANestedWaitIsNotInterrupted) {
  BusyEngines busy;
  const OwnStream outer;
  const OwnStream inner;
  ExternalEvent external;
  external.wait(*inner);
  std::atomic<bool> nested{false};
  std::atomic<bool> asked{false};
  bool finished = false;
  enqueue(
      *outer,
      [&] {
        nested = true;
        inner->synchronize();
        nested = false;
        finished = true;
      },
      waiting_kernel());
  check_with([&] {
    if (nested) asked = true;
  });
  const SleepWatch watch;
  std::thread signaller([&] {
    EXPECT_TRUE(watch.see());
    // Longer than a sleeping host goes without a check.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(120);
    EXPECT_TRUE(happens([&] { return std::chrono::steady_clock::now() > end; }));
    external.signal();
  });
  outer->synchronize();
  signaller.join();
  EXPECT_TRUE(finished);
  EXPECT_FALSE(asked);
}

TEST_F(CallbacksTest, InstallingNothingReplacesNothing) {
  const Callbacks before = current_callbacks();
  install_callbacks({});  // null members replace nothing
  const Callbacks after = current_callbacks();
  EXPECT_EQ(before.enter_commands, after.enter_commands);
  EXPECT_EQ(before.check_interrupt, after.check_interrupt);
}

std::atomic<int> g_cost_begun{0};
std::atomic<int> g_cost_ended{0};

TEST_F(CallbacksTest, CommandsThatAreExpectedToBeLongAreAnnounced) {
  OPENREG_NOT_AT_RANDOM("the submission may run the command");
  Callbacks callbacks;
  callbacks.begin_compute = [](Cost cost, bool engine) -> Callbacks::Team {
    EXPECT_TRUE(engine);
    g_cost_begun += static_cast<int>(cost.nanoseconds);
    return {.threads = 7, .otherwise = 1, .engine = engine};
  };
  callbacks.end_compute = [](Callbacks::Team team) noexcept { g_cost_ended += team.threads; };
  g_cost_begun = g_cost_ended = 0;
  install_callbacks(callbacks);
  const OwnStream stream;
  Gate ran;
  enqueue(*stream, [&] { ran.open(); }, function_kernel(), {.nanoseconds = 5'000'000});
  ran.wait();  // by an engine: this thread has not waited for the stream
  stream->synchronize();
  EXPECT_EQ(g_cost_begun, 5'000'000);
  EXPECT_EQ(g_cost_ended, 7);
  enqueue_nothing(*stream);
  stream->synchronize();
  EXPECT_EQ(g_cost_begun, 5'000'000);
}

TEST_F(CallbacksTest, WhoeverRunsAReproducibleCommandAnnouncesIt) {
  Callbacks callbacks;
  callbacks.begin_compute = [](Cost cost, bool engine) -> Callbacks::Team {
    if (cost.reproducible) ++g_cost_begun;
    return {.threads = 1, .otherwise = 1, .engine = engine};
  };
  callbacks.end_compute = [](Callbacks::Team team) noexcept { g_cost_ended += team.threads; };
  g_cost_begun = g_cost_ended = 0;
  install_callbacks(callbacks);
  const OwnStream stream;
  for (int i = 0; i < 100; ++i) {
    Function* const key = Functions::get().put([] {});
    stream->enqueue_and_wait(function_kernel(), std::as_bytes(std::span(&key, 1)),
                             {.reproducible = true});
  }
  EXPECT_EQ(g_cost_begun, 100);
  EXPECT_EQ(g_cost_ended, 100);
}

}  // namespace
}  // namespace openreg
