#include "address_space/signal_handler.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "../../not_emulated.h"
#include "address_space/fault_message.h"

namespace openreg {
namespace {

// What programs do with signals that are not for us: the result must be as if ours were not there.
// Each test dies in a separate process.
class SignalHandlerDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kFaultMessageAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

/// Puts our handler of SIGSEGV in front, as each asynchronous copy of pinned memory does.
void install_ours() {
  set_fault_handler([](const void*, FaultAccess) noexcept { return FaultResult::kUnhandled; });
}

using Handler = void (*)(int, siginfo_t*, void*);

/// Returns what was there before.
struct sigaction install(int signal, Handler handler, int flags = 0) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(signal, &action, &before);
  return before;
}

void print(const char* line) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, std::strlen(line));
}

void fault() {
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
}

[[noreturn]] void exit_politely(int, siginfo_t*, void*) { _exit(42); }

struct sigaction g_before;
struct sigaction g_before_second;

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler == SIG_DFL) {
    sigaction(signal, &action, nullptr);
    raise(signal);
  } else if (action.sa_handler != SIG_IGN) {
    action.sa_handler(signal);
  }
}

void print_and_call_before(int signal, siginfo_t* info, void* context) {
  print("theirs\n");
  call(g_before, signal, info, context);
}

TEST_F(SignalHandlerDeathTest, AFaultThatSomebodySentReachesAHandlerThatWasInstalledAfterOurs) {
  EXPECT_EXIT(
      {
        install_ours();
        install(SIGSEGV, &exit_politely);
        install_ours();
        kill(getpid(), SIGSEGV);
        for (;;) pause();
      },
      testing::ExitedWithCode(42), "^$");
}

TEST_F(SignalHandlerDeathTest, AHandlerThatCallsOursIsCalledOnce) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        install_ours();
        g_before = install(SIGSEGV, &print_and_call_before);
        install_ours();
        fault();
      },
      testing::KilledBySignal(SIGSEGV), "^theirs\n$");
}

TEST_F(SignalHandlerDeathTest, HandlersBetweenOursAreCalledFromTheLastToTheFirst) {
  EXPECT_EXIT(
      {
        install(SIGSEGV, [](int, siginfo_t*, void*) {
          print("first\n");
          _exit(42);
        });
        install_ours();
        g_before = install(SIGSEGV, &print_and_call_before);
        install_ours();
        g_before_second = install(SIGSEGV, [](int signal, siginfo_t* info, void* context) {
          print("last\n");
          call(g_before_second, signal, info, context);
        });
        install_ours();
        fault();
      },
      testing::ExitedWithCode(42), "^last\ntheirs\nfirst\n$");
}

// As crash reporters do: the fault occurs again and reaches what they have restored.
TEST_F(SignalHandlerDeathTest, AHandlerThatRestoresOursAndReturnsIsCalledOnce) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        install_ours();
        g_before = install(SIGSEGV, [](int signal, siginfo_t*, void*) {
          print("theirs\n");
          sigaction(signal, &g_before, nullptr);
        });
        install_ours();
        fault();
      },
      testing::KilledBySignal(SIGSEGV), "^theirs\n$");
}

// As Python's faulthandler does.
TEST_F(SignalHandlerDeathTest, AHandlerThatRestoresOursAndRaisesTheSignalIsCalledOnce) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  for (const int flags : {0, int{SA_NODEFER}}) {
    EXPECT_EXIT(
        {
          install_ours();
          g_before = install(
              SIGSEGV,
              [](int signal, siginfo_t*, void*) {
                print("theirs\n");
                sigaction(signal, &g_before, nullptr);
                raise(signal);
              },
              flags);
          install_ours();
          fault();
        },
        testing::KilledBySignal(SIGSEGV), "^theirs\n$");
  }
}

TEST_F(SignalHandlerDeathTest, AHandlerThatIsInstalledAndRemovedAgainAndAgainNeedsNoMoreOfOurs) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        for (int i = 0; i < 100; ++i) {
          install_ours();
          g_before = install(SIGSEGV, &print_and_call_before);
          install_ours();
          sigaction(SIGSEGV, &g_before, nullptr);
          install_ours();
          signal(SIGSEGV, SIG_DFL);
        }
        g_before = install(SIGSEGV, &print_and_call_before);
        install_ours();
        fault();
      },
      testing::KilledBySignal(SIGSEGV), "^theirs\n$");
}

TEST_F(SignalHandlerDeathTest, AHandlerHasTheMaskAndTheFlagsThatItWasInstalledWith) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        struct sigaction action {};
        sigaddset(&action.sa_mask, SIGUSR1);
        action.sa_flags = SA_NODEFER | SA_RESETHAND;
        action.sa_handler = [](int signal) {
          sigset_t blocked;
          pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
          print(sigismember(&blocked, SIGUSR1) == 1 ? "masked\n" : "not masked\n");
          print(sigismember(&blocked, signal) == 1 ? "deferred\n" : "not deferred\n");
        };
        sigaction(SIGSEGV, &action, nullptr);
        install_ours();
        raise(SIGSEGV);
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        if (sigismember(&blocked, SIGUSR1) == 1) print("left over\n");
        raise(SIGSEGV);
      },
      testing::KilledBySignal(SIGSEGV), "^masked\nnot deferred\n$");
}

TEST_F(SignalHandlerDeathTest, ASignalThatIsIgnoredInterruptsNoSystemCall) {
  OPENREG_NOT_EMULATED("SA_RESTART");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_IGN);
        install_ours();
        int ends[2];
        if (pipe(ends) != 0) _exit(1);
        const auto child = fork();
        if (child == 0) {
          for (int i = 0; i < 20; ++i) {
            kill(getppid(), SIGSEGV);
            usleep(5'000);
          }
          [[maybe_unused]] const auto written = ::write(ends[1], "x", 1);
          _exit(0);
        }
        char byte = 0;
        _exit(::read(ends[0], &byte, 1) == 1 ? 42 : 1);
      },
      testing::ExitedWithCode(42), "^$");
}

}  // namespace
}  // namespace openreg
