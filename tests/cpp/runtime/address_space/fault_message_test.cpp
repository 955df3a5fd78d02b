#include "address_space/fault_message.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "../../not_emulated.h"
#include "address_space/address_space.h"

namespace openreg {
namespace {

// Each test dies in a separate process, whose address space has not been reserved before.
class FaultMessageDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kFaultMessageAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

volatile char g_sink;

void read_byte(const void* address) { g_sink = *static_cast<const volatile char*>(address); }

void* map_on(int device) { return AddressSpace::get().map(device, 1); }

void* inaccessible_page() {
  return mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

[[noreturn]] void exit_politely(int) { _exit(42); }

void* volatile g_expected_address;
void exit_if_address_is_right(int signal, siginfo_t* info, void*) {
  _exit(signal == SIGSEGV && info->si_addr == g_expected_address ? 43 : 1);
}

TEST_F(FaultMessageDeathTest, AHostReadOfDeviceMemoryPrintsOneLineAndDiesBySegv) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(read_byte(map_on(1)), testing::KilledBySignal(SIGSEGV),
              "^openreg: host code accessed device memory of openreg:1 \\(address 0x[0-9a-f]+\\); "
              "copy it with "
              "\\.cpu\\(\\)\n$");
}

TEST_F(FaultMessageDeathTest, AHostWriteIntoAnUnmappedPartOfAWindowDoesTheSame) {
  EXPECT_EXIT(
      {
        map_on(0);
        const auto& space = AddressSpace::get();
        *reinterpret_cast<volatile char*>(space.window_begin(0) + space.window_bytes() - 1) = 1;
      },
      testing::KilledBySignal(SIGSEGV),
      "^openreg: host code accessed device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, ThePreviousHandlerRunsAfterTheMessage) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, exit_politely);
        read_byte(map_on(0));
      },
      testing::ExitedWithCode(42), "^openreg: host code accessed device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, AFaultElsewhereDiesWithoutAMessage) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        map_on(0);
        read_byte(inaccessible_page());
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(FaultMessageDeathTest, AFaultElsewhereGoesToThePreviousHandler) {
  EXPECT_EXIT(
      {
        struct sigaction action {};
        action.sa_sigaction = exit_if_address_is_right;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, nullptr);
        map_on(0);
        g_expected_address = inaccessible_page();
        read_byte(g_expected_address);
      },
      testing::ExitedWithCode(43), "^$");
}

TEST_F(FaultMessageDeathTest, ASignalThatSomebodySentKillsAsBefore) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        map_on(0);
        kill(getpid(), SIGSEGV);
        for (;;) pause();
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(FaultMessageDeathTest, ASignalThatSomebodySentStaysIgnoredWhereItWas) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_IGN);
        void* const segment = map_on(0);
        raise(SIGSEGV);
        std::fputs("still here\n", stderr);
        read_byte(segment);
      },
      testing::KilledBySignal(SIGSEGV),
      "^still here\nopenreg: host code accessed device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, TheSettingLeavesItOut) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_FAULT_MESSAGE", "0", 1);
        read_byte(map_on(0));
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

// --- Fault handlers ---

constexpr std::size_t kPage = 4096;
char* g_page;
volatile FaultAccess g_access;

void set_protection(int protection) { mprotect(g_page, kPage, protection); }

FaultResult open_page(const void* address, FaultAccess access) noexcept {
  if (address < g_page || address >= g_page + kPage) return FaultResult::kUnhandled;
  g_access = access;
  set_protection(PROT_READ | PROT_WRITE);
  return FaultResult::kRetry;
}

TEST_F(FaultMessageDeathTest, AFaultHandlerLetsTheInstructionGoOnAndKnowsWhatItDoes) {
  OPENREG_NOT_EMULATED("asks what the instruction does");
  EXPECT_EXIT(
      {
        g_page = static_cast<char*>(inaccessible_page());
        set_fault_handler(&open_page);
        *static_cast<volatile char*>(g_page) = 7;
        const bool wrote = g_access == FaultAccess::kWrite;
        set_protection(PROT_NONE);
        read_byte(g_page);
        _exit(wrote && g_access == FaultAccess::kRead && g_sink == 7 ? 42 : 1);
      },
      testing::ExitedWithCode(42), "^$");
}

FaultResult interrupt_first(const void* address, FaultAccess access) noexcept {
  static bool is_first = true;
  if (is_first) {
    is_first = false;
    sigset_t later;
    sigemptyset(&later);
    sigaddset(&later, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &later, nullptr);
    raise(SIGUSR1);  // delivered when the handler of the fault has returned
  }
  return open_page(address, access);
}

TEST_F(FaultMessageDeathTest, ASignalHandlerBetweenTheFaultAndTheInstructionMayFaultToo) {
  EXPECT_EXIT(
      {
        g_page = static_cast<char*>(inaccessible_page());
        set_fault_handler(&interrupt_first);
        signal(SIGUSR1, [](int) {
          set_protection(PROT_NONE);
          g_page[1] = 8;
          set_protection(PROT_READ | PROT_WRITE);
        });
        *static_cast<volatile char*>(g_page) = 7;
        read_byte(g_page + 1);
        _exit(g_sink == 8 ? 42 : 1);
      },
      testing::ExitedWithCode(42), "^$");
}

TEST_F(FaultMessageDeathTest, AFaultHandlerIsNotCalledIfAnotherProtectionDoesNotHelp) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  const auto execute = [] { reinterpret_cast<void (*)()>(g_page)(); };
  const auto read_unmapped = [] {
    munmap(g_page, kPage);
    read_byte(g_page);
  };
  for (void (*access)() : {+execute, +read_unmapped}) {
    EXPECT_EXIT(
        {
          alarm(20);
          g_page = static_cast<char*>(inaccessible_page());
          set_fault_handler(&open_page);
          access();
        },
        testing::KilledBySignal(SIGSEGV), "^$");
  }
}

TEST_F(FaultMessageDeathTest, AFatalFaultGoesToTheHandlerBefore) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, exit_politely);
        set_fault_handler([](const void*, FaultAccess) noexcept { return FaultResult::kFatal; });
        read_byte(inaccessible_page());
      },
      testing::ExitedWithCode(42), "^$");
}

TEST_F(FaultMessageDeathTest, AFatalFaultEndsTheProcessAsUsual) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  EXPECT_EXIT(
      {
        set_fault_handler([](const void*, FaultAccess) noexcept { return FaultResult::kFatal; });
        read_byte(inaccessible_page());
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(FaultMessageDeathTest, AFaultHandlerComesBeforeTheMessageAndBeforeHandlersOfThatTime) {
  EXPECT_EXIT(
      {
        void* const segment = map_on(0);
        g_page = static_cast<char*>(inaccessible_page());
        set_fault_handler(&open_page);
        signal(SIGSEGV, exit_politely);
        set_fault_handler(&open_page);
        read_byte(g_page);
        read_byte(segment);
      },
      testing::ExitedWithCode(42), "^openreg: host code accessed device memory of openreg:0 .*\n$");
}

}  // namespace
}  // namespace openreg
