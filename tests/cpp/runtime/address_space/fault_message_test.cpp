#include "runtime/address_space/fault_message.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/address_space/address_space.h"

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

void* g_expected_address;
void exit_if_address_is_right(int signal, siginfo_t* info, void*) {
  _exit(signal == SIGSEGV && info->si_addr == g_expected_address ? 43 : 1);
}

TEST_F(FaultMessageDeathTest, AHostReadOfDeviceMemoryPrintsOneLineAndDiesBySegv) {
  EXPECT_EXIT(read_byte(map_on(1)), testing::KilledBySignal(SIGSEGV),
              "^openreg: the host touched device memory of openreg:1 \\(address 0x[0-9a-f]+\\); "
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
      "^openreg: the host touched device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, ThePreviousHandlerRunsAfterTheMessage) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, exit_politely);
        read_byte(map_on(0));
      },
      testing::ExitedWithCode(42), "^openreg: the host touched device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, AFaultElsewhereDiesWithoutAMessage) {
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
      "^still here\nopenreg: the host touched device memory of openreg:0 .*\n$");
}

TEST_F(FaultMessageDeathTest, TheSettingLeavesItOut) {
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_FAULT_MESSAGE", "0", 1);
        read_byte(map_on(0));
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace openreg
