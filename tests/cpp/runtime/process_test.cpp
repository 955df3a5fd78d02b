// How the process ends, and what its forked children can do.

#include "runtime/process.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/callbacks.h"
#include "runtime/command.h"
#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;
using ::testing::ExitedWithCode;

// Each of these ends a separate process.
class ExitDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void enqueue_failure(Stream& stream, const char* sentence) {
  enqueue(stream, [sentence] { throw std::runtime_error(sentence); });
}

void wait_for_shutdown() {
  EXPECT_TRUE(happens([] { return is_shut_down(); }));
}

// An object that outlives the function that calls exit().
template <class T>
T& leaked() {
  static auto& kept = *new std::vector<std::unique_ptr<T>>;
  return *kept.emplace_back(std::make_unique<T>());
}

TEST_F(ExitDeathTest, TheFirstUseIsAnnouncedBeforeAnythingIsSubmitted) {
  EXPECT_EXIT(
      {
        Callbacks callbacks;
        callbacks.begin_use = []() noexcept { std::fputs("in use\n", stderr); };
        install_callbacks(callbacks);
        std::fputs("unused\n", stderr);
        enqueue(create_stream(0), [] { std::fputs("a command\n", stderr); });
        default_stream(1).synchronize();
        synchronize_device(0);
        std::exit(0);
      },
      ExitedWithCode(0), "^unused\nin use\na command\n$");
}

TEST_F(ExitDeathTest, WorkInFlightIsNoReasonToWaitOrToComplain) {
  EXPECT_EXIT(
      {
        auto& external = leaked<ExternalEvent>();
        for (int i = 0; i < 20; ++i) {
          Stream& stream = create_stream(i % 2);
          for (int c = 0; c < 500; ++c) enqueue_nothing(stream);
          if (i % 3 == 0) external.wait(stream);
          for (int c = 0; c < 500; ++c) enqueue_nothing(stream);
        }
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, TheRunningCommandEndsAndTheQueuedOnesAreDropped) {
  EXPECT_EXIT(
      {
        auto& running = leaked<Gate>();
        enqueue(default_stream(0), [&running] {
          running.open();
          wait_for_shutdown();
          std::fputs("the running command has ended\n", stderr);
        });
        enqueue(default_stream(0), [] { std::fputs("a queued command ran\n", stderr); });
        running.wait();
        std::exit(0);
      },
      ExitedWithCode(0), "^the running command has ended\n$");
}

TEST_F(ExitDeathTest, ACommandThatAnotherHostRunsEndsToo) {
  EXPECT_EXIT(
      {
        auto& running = leaked<Gate>();
        auto& busy = leaked<BusyEngines>();
        enqueue(default_stream(0), [&] {
          running.open();
          wait_for_shutdown();
          std::fputs("the running command has ended\n", stderr);
        });
        std::thread([] { default_stream(0).synchronize(); }).detach();
        running.wait();
        std::thread([&] {
          wait_for_shutdown();
          busy.open();
        }).detach();
        std::exit(0);
      },
      ExitedWithCode(0), "^the running command has ended\n$");
}

TEST_F(ExitDeathTest, ACommandThatMayBlockIsNotWaitedFor) {
  EXPECT_EXIT(
      {
        auto& running = leaked<Gate>();
        auto& never = leaked<Gate>();
        enqueue(
            default_stream(0),
            [&] {
              running.open();
              never.wait();
            },
            blocking_kernel());
        running.wait();
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, ACommandThatWaitsForAnotherStreamIsNotWaitedFor) {
  EXPECT_EXIT(
      {
        auto& never = leaked<ExternalEvent>();
        Stream& inner = create_stream(0);
        never.wait(inner);
        const SleepWatch watch;
        enqueue(default_stream(0), [&] { inner.synchronize(); });
        EXPECT_TRUE(watch.see());
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, AHostThatWaitsMeanwhileStaysWhereItIs) {
  EXPECT_EXIT(
      {
        auto& never = leaked<ExternalEvent>();
        never.wait(default_stream(0));
        const SleepWatch watch;
        std::thread([] { default_stream(0).synchronize(); }).detach();
        EXPECT_TRUE(watch.see());
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

// As Python does with a thread that wants the interpreter while the process ends.
TEST_F(ExitDeathTest, AThreadThatEndsInACommandThatItSubmittedReleasesOnlyWhatIsItsOwn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined-behaviour sanitizer objects to any handler for the end of a "
                  "thread, as libstdc++ gives it no exception object";
#endif
  EXPECT_EXIT(
      {
        static const Kernel ends_thread(
            "test_end_of_thread",
            [](const Kernel&, std::span<const std::byte>) { pthread_exit(nullptr); },
            {.brief = true});
        Stream& stream = default_stream(0);
        std::thread([&] { stream.enqueue_and_wait(ends_thread, {}); }).join();
        std::_Exit(7);
      },
      ExitedWithCode(7), "^$");
}

TEST_F(ExitDeathTest, ACommandMayCallExit) {
  EXPECT_EXIT(
      {
        enqueue(default_stream(0), [] { std::exit(3); });
        leaked<Gate>().wait();
      },
      ExitedWithCode(3), "^$");
}

TEST_F(ExitDeathTest, AnErrorThatNoCallCollectedIsPrintedOnceWithItsKernel) {
  EXPECT_EXIT(
      {
        Stream& stream = default_stream(0);
        Stream& other = default_stream(1);
        auto& event = leaked<Event>();
        enqueue_failure(stream, "index 7 is out of bounds\nand a backtrace");
        event.record(stream);
        event.wait(other);  // passes the error on
        EXPECT_TRUE(happens([&] { return stream.idle() && other.idle(); }));
        std::exit(0);
      },
      ExitedWithCode(0),
      "^openreg: test_function failed on openreg:0, stream 0: index 7 is out of bounds; no later "
      "call collected this error\n$");
}

TEST_F(ExitDeathTest, AnErrorOfACommandThatIsStillQueuedIsPrinted) {
  EXPECT_EXIT(
      {
        Stream& first = default_stream(0);
        Stream& second = create_stream(0);
        auto& event = leaked<Event>();
        for (int i = 0; i < 100; ++i) enqueue_nothing(first);
        event.record(first);
        event.wait(second);
        enqueue_failure(second, "index 7 is out of bounds");
        std::exit(0);
      },
      ExitedWithCode(0), "^openreg: test_function failed .*: index 7 is out of bounds; no later");
}

TEST_F(ExitDeathTest, EachOfSeveralErrorsIsPrinted) {
  EXPECT_EXIT(
      {
        enqueue_failure(create_stream(0), "the first");
        enqueue_failure(create_stream(0), "the second");
        enqueue_failure(create_stream(1), "the third");
        EXPECT_NE(error_of([] { synchronize_device(0); }), "nothing");
        std::exit(0);
      },
      ExitedWithCode(0), "^openreg: .*the (first|second);.*\nopenreg: .*the third;[^\n]*\n$");
}

TEST_F(ExitDeathTest, AnErrorThatWasCollectedIsNotPrinted) {
  EXPECT_EXIT(
      {
        Stream& stream = default_stream(0);
        Stream& other = create_stream(0);
        auto& event = leaked<Event>();
        enqueue_failure(stream, "collected");
        event.record(stream);
        event.wait(other);
        EXPECT_TRUE(happens([&] { return other.idle(); }));
        EXPECT_NE(error_of([&] { stream.synchronize(); }), "nothing");
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, AfterShutdownLaunchesThrowAndFreesDoNothing) {
  EXPECT_EXIT(
      {
        const std::string sentence =
            "openreg: the device has been shut down; the process is about to exit";
        Stream& stream = create_stream(0);
        auto event = std::make_unique<Event>();
        auto external = std::make_unique<ExternalEvent>();
        event->record(stream);
        external->wait(stream);
        EXPECT_TRUE(is_initialized());
        EXPECT_FALSE(is_shut_down());
        shutdown();
        shutdown();
        EXPECT_TRUE(is_shut_down());
        EXPECT_EQ(error_of([&] { enqueue_nothing(stream); }), sentence);
        EXPECT_EQ(error_of([&] { stream.synchronize(); }), sentence);
        EXPECT_EQ(error_of([&] { event->record(stream); }), sentence);
        EXPECT_EQ(error_of([&] { event->synchronize(); }), sentence);
        EXPECT_EQ(error_of([&] { external->signal(); }), "nothing");
        EXPECT_FALSE(stream.query());
        EXPECT_EQ(&default_stream(0), &find_stream(0, 0));
        external.reset();
        event.reset();
        destroy_stream(stream);
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, OneThreadMayGoOnIfTheQueuesHaveBeenEmptied) {
  EXPECT_EXIT(
      {
        Stream& stream = create_stream(0);
        enqueue(stream, [] { std::fputs("before\n", stderr); });
        enqueue_failure(default_stream(1), "nobody has asked");
        restrict_to_this_thread();
        restrict_to_this_thread();
        EXPECT_FALSE(is_shut_down());
        enqueue(stream, [] { std::fputs("after\n", stderr); });
        stream.synchronize();
        std::thread([&] {
          EXPECT_EQ(error_of([&] { enqueue_nothing(stream); }),
                    "openreg: the device has been shut down; the process is about to exit");
        }).join();
        enqueue_failure(stream, "too late");
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ExitedWithCode(0), "^before\n.*nobody has asked.*\nafter\n.*too late.*\n$");
}

TEST_F(ExitDeathTest, NoThreadMayGoOnIfAQueueIsNotEmpty) {
  EXPECT_EXIT(
      {
        auto& external = leaked<ExternalEvent>();
        external.wait(create_stream(0));
        restrict_to_this_thread();
        EXPECT_TRUE(is_shut_down());
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ExitedWithCode(0), "^$");
}

TEST_F(ExitDeathTest, OneThreadMayBeginToUseADeviceThatWasUnused) {
  EXPECT_EXIT(
      {
        restrict_to_this_thread();
        std::thread([] {
          EXPECT_NE(error_of([] { enqueue_nothing(default_stream(0)); }), "nothing");
        }).join();
        EXPECT_FALSE(is_initialized());
        enqueue(default_stream(0), [] { std::fputs("a command\n", stderr); });
        default_stream(0).synchronize();
        EXPECT_TRUE(is_in_use());
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ExitedWithCode(0), "^a command\n$");
}

TEST_F(ExitDeathTest, ShutdownOfAnUnusedDeviceLeavesItUnused) {
  EXPECT_EXIT(
      {
        EXPECT_FALSE(is_initialized());
        shutdown();
        EXPECT_FALSE(is_initialized());
        EXPECT_NE(error_of([] { enqueue_nothing(default_stream(0)); }), "nothing");
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ExitedWithCode(0), "^$");
}

constinit bool g_is_child = false;

// Runs `body` in a forked child, and returns its exit status, or minus the signal that killed it.
int status_of_child(const std::function<bool()>& body, void (*exit)(int) = &std::exit) {
  const pid_t child = fork();
  if (child == 0) {
    g_is_child = true;
    alarm(30);  // for a child that hangs on a lock of its parent
    exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

constexpr char kForked[] =
    "openreg: Cannot re-initialize openreg in forked subprocess. To use openreg with "
    "multiprocessing, you must use the 'spawn' start method";

TEST(Fork, EveryEntryPointOfTheChildSaysSoAndItExitsNormally) {
  Stream& stream = default_stream(0);
  Blocker blocker(stream);
  Event event(true);
  event.record(stream);
  ExternalEvent external;
  const int status = status_of_child([&] {
    const auto refused = [](auto&& function) { return error_of(function) == kForked; };
    return in_bad_fork() && is_initialized() && !is_shut_down() &&
           refused([&] { enqueue_nothing(stream); }) && refused([&] { stream.synchronize(); }) &&
           refused([] { synchronize_device(0); }) && refused([] { default_stream(0); }) &&
           refused([] { create_stream(0); }) && refused([] { find_stream(0, 0); }) &&
           refused([&] { event.record(stream); }) && refused([&] { event.wait(stream); }) &&
           refused([&] { event.synchronize(); }) &&
           refused([&] { Event::elapsed_ms(event, event); }) &&
           refused([&] { external.wait(stream); }) && refused([&] { external.signal(); }) &&
           refused([] { check_usable(); }) && stream.query() && event.query();
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(in_bad_fork());
  blocker.open();
  stream.synchronize();
}

TEST(Fork, AChildDestroysWhatItInheritedWhateverLocksWereHeld) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's allocator keeps a lock that another thread held at the fork";
#endif
  std::atomic<bool> stop{false};
  std::thread user([&] {
    Event event;
    while (!stop) {
      Stream& stream = create_stream(0);
      enqueue_nothing(stream);
      event.record(stream);
      event.wait(default_stream(1));
      destroy_stream(stream);
    }
    synchronize_device(0);
    synchronize_device(1);
  });
  Stream& inherited = create_stream(0);
  enqueue_nothing(
      inherited);  // its kernel is made by now: no child waits for a parent's thread to make it
  for (int i = 0; i < 20; ++i) {
    auto event = std::make_unique<Event>();
    auto external = std::make_unique<ExternalEvent>();
    event->record(inherited);
    external->wait(inherited);
    const auto destroy = [&] {
      event.reset();
      external.reset();
      destroy_stream(inherited);
      shutdown();
      return error_of([&] { enqueue_nothing(inherited); }) == kForked;
    };
    // Without the leak check at exit: here destructors leak on purpose.
    EXPECT_EQ(status_of_child(destroy, &std::_Exit), 0);
    external->signal();
  }
  stop = true;
  user.join();
  destroy_stream(inherited);
}

TEST_F(ExitDeathTest, AChildOfAProcessThatDidNotUseTheDeviceMayUseIt) {
  EXPECT_EXIT(
      {
        const int status = status_of_child([] {
          bool ran = false;
          enqueue(default_stream(0), [&] { ran = true; });
          default_stream(0).synchronize();
          return ran && !in_bad_fork();
        });
        std::exit(status);
      },
      ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace openreg

#ifdef __SANITIZE_ADDRESS__
// The leak checker asks at exit. A forked child has lost the threads that refer to what they own.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return openreg::g_is_child ? 1 : 0; }
#endif
