#include "memory/pinned/pinned_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../not_emulated.h"
#include "../runtime/stream_helpers.h"
#include "memory/footprint.h"
#include "memory/pinned/pending_copies.h"
#include "memory/pinned/pinned_pages.h"
#include "memory/pinned/pinned_windows.h"
#include "runtime/event.h"
#include "runtime/happens_before.h"
#include "runtime/stream.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;
using Reaction = PinnedGuard::Reaction;

constexpr std::size_t kPage = 4096;
constexpr auto kCopyWrites = true;
constexpr auto kCopyReads = false;

std::atomic<int> reports{0};
std::atomic<int> warnings{0};
std::string last_report;

bool take_report(const char* report, Reaction how) noexcept {
  ++(how == Reaction::kWarn ? warnings : reports);
  last_report = report;
  return true;
}

char read(const void* address) { return *static_cast<const volatile char*>(address); }
void write(void* address, char value) { *static_cast<volatile char*>(address) = value; }

std::uintptr_t to_device(const void* p) {
  return pinned_pages::device_address(reinterpret_cast<std::uintptr_t>(p));
}

struct Free {
  void operator()(char* block) const {
    synchronize_device(0);
    if (auto* const guard = PinnedGuard::get()) guard->reused(block);
    pinned_pages::unmap(block);
  }
};
using Memory = std::unique_ptr<char, Free>;

/// A block of pinned memory, which is taken and returned as by its allocator, but not cached.
Memory block_of(std::size_t bytes) {
  Memory block(static_cast<char*>(pinned_pages::map(bytes)));
  if (auto* const windows = PinnedWindows::get_if_made()) windows->set_used(block.get(), bytes);
  return block;
}

/// Pinned memory, and copies to and from it that the guard knows.
class PinnedGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PinnedGuard::kAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
    OPENREG_NOT_EMULATED("asks what the instruction does");
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    HappensBefore::track(true);
    PinnedGuard::switch_on(Reaction::kRaise);
    PinnedGuard::set_reporter(&take_report);
    reports = warnings = 0;
    last_report.clear();
  }
  void TearDown() override {
    stream.synchronize();
    PinnedGuard::switch_off();
    PinnedGuard::set_reporter(nullptr);
    HappensBefore::track(false);
  }

  /// As the race detector does before a command is enqueued.
  SubmissionId announce(const Footprint& footprint, bool written, Stream& on) {
    const auto submission = HappensBefore::get()->submit(on).last();
    PinnedGuard::get()->protect(footprint, written, submission,
                                "aten::copy_ by train.py:12 in step");
    return submission;
  }
  void announce(const Footprint& footprint, bool written) { announce(footprint, written, stream); }

  /// A copy to `to`, which writes `value`.
  void copy_to(void* to, std::size_t bytes, char value) {
    announce(Footprint(to, bytes), kCopyWrites);
    enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to_device(to)), value, bytes); });
  }

  OwnStream own_stream;
  Stream& stream = *own_stream;
};
using PinnedGuardDeathTest = PinnedGuardTest;

TEST_F(PinnedGuardTest, AReadBeforeTheWaitIsReportedAndTheProgramGoesOn) {
  const auto data = block_of(100);
  auto* const bytes = data.get();
  copy_to(bytes, 100, 7);
  read(bytes + 12);
  EXPECT_EQ(reports, 1);
  EXPECT_PRED2(contains, last_report,
               "openreg: the host read pinned memory before it waited for the copy "
               "that writes it (byte 12 of the block at 0x");
  EXPECT_PRED2(contains, last_report, "; aten::copy_ by train.py:12 in step); call ");
  read(bytes + 13);
  EXPECT_EQ(reports, 1);  // once for each copy
}

TEST_F(PinnedGuardTest, ItIsReportedEvenIfTheCopyHasLongCompleted) {
  const auto data = block_of(100);
  copy_to(data.get(), 100, 7);
  while (!stream.idle()) std::this_thread::yield();
  EXPECT_EQ(read(data.get()), 7);
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, AWriteToTheDestinationIsReported) {
  const auto data = block_of(100);
  announce(Footprint(data.get(), 100), kCopyWrites);
  write(data.get(), 1);
  EXPECT_EQ(reports, 1);
  EXPECT_PRED2(contains, last_report,
               "the host wrote to pinned memory before it waited for the copy that "
               "writes it");
}

TEST_F(PinnedGuardTest, TheSourceOfACopyMayBeReadButNotWritten) {
  const auto data = block_of(100);
  auto* const bytes = data.get();
  write(bytes, 5);
  announce(Footprint(bytes, 100), kCopyReads);
  EXPECT_EQ(read(bytes), 5);
  EXPECT_EQ(reports, 0);
  write(bytes, 6);
  EXPECT_EQ(reports, 1);
  EXPECT_PRED2(contains, last_report,
               "the host wrote to pinned memory before it waited for the copy that "
               "reads it");
  EXPECT_EQ(read(bytes), 6);
}

/// Whether the system may read the byte: for it there is no handler that could open the page.
bool system_reads(const void* address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool reads = ::write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return reads;
}
/// Whether the system may write to the byte.
bool system_writes(void* address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool writes = ::write(ends[1], "x", 1) == 1 && ::read(ends[0], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return writes;
}

TEST_F(PinnedGuardTest, APageWithOtherBytesOfTheProgramStaysOpen) {
  const auto data = block_of(3 * kPage);
  auto* const bytes = data.get();
  announce(Footprint(bytes + 1000, kPage), kCopyWrites);
  announce(Footprint(bytes + 2 * kPage, kPage - 1), kCopyReads);
  for (char* const at : {bytes, bytes + 999, bytes + kPage + 1000, bytes + 2 * kPage - 1,
                         bytes + 2 * kPage, bytes + 3 * kPage - 1}) {
    EXPECT_TRUE(system_reads(at)) << at - bytes;
    EXPECT_TRUE(system_writes(at)) << at - bytes;
  }
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, WhatIsBehindTheRequestedBytesIsNobodys) {
  for (const std::size_t size : {1UL, 100UL, 4000UL, kPage, kPage + 1, 3 * kPage - 1}) {
    reports = 0;
    const auto data = block_of(size);
    auto* const bytes = data.get();
    copy_to(bytes, size, 7);
    EXPECT_FALSE(system_reads(bytes + size - 1)) << size;
    read(bytes + size - 1);
    EXPECT_EQ(reports, 1) << size;
    stream.synchronize();
  }
}

TEST_F(PinnedGuardTest, CopiesThatHaveAPageTogetherCloseIt) {
  const auto data = block_of(2 * kPage);
  auto* const bytes = data.get();
  const std::int64_t sizes[] = {2 * kPage / 32, 16};
  const std::int64_t strides[] = {32, 1};
  Event event;
  announce(Footprint(bytes, 1, sizes, strides), kCopyWrites);  // every other 16 bytes
  EXPECT_TRUE(system_reads(bytes + 16));
  event.record(stream);
  announce(Footprint(bytes + 16, 1, sizes, strides), kCopyReads);  // the others
  EXPECT_TRUE(system_reads(bytes + 16));
  EXPECT_FALSE(system_writes(bytes + 16));
  announce(Footprint(bytes + 16, kPage - 16), kCopyWrites);
  EXPECT_FALSE(system_reads(bytes + 16));
  EXPECT_TRUE(system_reads(bytes + kPage + 16));
  event.synchronize();
  EXPECT_TRUE(system_writes(bytes));  // which the last two do not use
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AnInstructionThatReachesIntoAClosedPageIsReported) {
  const auto data = block_of(2 * kPage);
  auto* const bytes = data.get();
  announce(Footprint(bytes + kPage, kPage), kCopyWrites);
  const auto read_word = [&](std::size_t at) {
    return *reinterpret_cast<const volatile std::int64_t*>(bytes + at);
  };
  read_word(kPage - 8);
  EXPECT_EQ(reports, 0);
  read_word(kPage - 4);
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, APageBetweenTheElementsOfAStridedCopyIsNotProtected) {
  const auto data = block_of(4 * kPage);
  auto* const bytes = data.get();
  const std::int64_t sizes[] = {2, kPage};
  const std::int64_t strides[] = {3 * kPage, 1};
  announce(Footprint(bytes, 1, sizes, strides), kCopyWrites);
  EXPECT_TRUE(system_reads(bytes + kPage));
  EXPECT_FALSE(system_reads(bytes + 3 * kPage));
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AfterAWaitForTheStreamTheResultIsThere) {
  const auto data = block_of(3 * kPage);
  auto* const bytes = data.get();
  copy_to(bytes, 3 * kPage, 7);
  stream.synchronize();
  for (const std::size_t at : {std::size_t{0}, kPage, 3 * kPage - 1})
    EXPECT_EQ(read(bytes + at), 7);
  write(bytes, 1);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AfterAWaitForAnEventTheResultIsThere) {
  const auto data = block_of(100);
  copy_to(data.get(), 100, 7);
  Event event;
  event.record(stream);
  event.synchronize();
  EXPECT_EQ(read(data.get()), 7);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AfterAQueryThatSaysYesTheResultIsThere) {
  const auto data = block_of(100);
  auto* const bytes = data.get();
  copy_to(bytes, 10, 7);
  Event event;
  event.record(stream);
  while (!event.query()) std::this_thread::yield();
  EXPECT_EQ(read(bytes), 7);
  copy_to(bytes + 10, 10, 8);
  while (!stream.query()) std::this_thread::yield();
  EXPECT_EQ(read(bytes + 10), 8);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AnEventThatWasRecordedBeforeTheCopyDoesNotHelp) {
  const auto data = block_of(100);
  Event event;
  event.record(stream);
  copy_to(data.get(), 100, 7);
  event.synchronize();
  read(data.get());
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, AWaitForAnotherStreamDoesNotHelp) {
  const auto data = block_of(100);
  copy_to(data.get(), 100, 7);
  OwnStream()->synchronize();
  read(data.get());
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, OfSeveralCopiesThoseThatTheHostHasNotSeenStayPending) {
  const auto data = block_of(2 * kPage);
  auto* const bytes = data.get();
  Event event;
  copy_to(bytes, kPage + 10, 1);
  event.record(stream);
  copy_to(bytes + kPage + 10, kPage - 10, 2);
  announce(Footprint(bytes, kPage), kCopyReads);
  event.synchronize();
  EXPECT_EQ(read(bytes), 1);
  EXPECT_EQ(read(bytes + kPage), 1);
  EXPECT_EQ(reports, 0);
  write(bytes, 3);
  EXPECT_EQ(reports, 1);
  announce(Footprint(bytes + kPage, 10), kCopyWrites);
  read(bytes + kPage + 19);
  EXPECT_EQ(reports, 2);
  stream.synchronize();
  write(bytes, 4);
  write(bytes + kPage + 30, 4);
  EXPECT_EQ(reports, 2);
}

TEST_F(PinnedGuardTest, ManyCopiesMayBePendingOnOneBlock) {
  constexpr std::size_t kCopies = 2000;
  const auto data = block_of(16 * kCopies);
  auto* const bytes = data.get();
  for (std::size_t i = 0; i < kCopies; ++i) copy_to(bytes + 16 * i, 16, static_cast<char>(i));
  read(bytes + 16 * (kCopies - 10));
  EXPECT_EQ(reports, 1);
  stream.synchronize();
  for (std::size_t i = 0; i < kCopies; ++i) EXPECT_EQ(read(bytes + 16 * i), static_cast<char>(i));
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, OfVeryManyCopiesToOneBlockTheNewestAreGuarded) {
  constexpr auto kMost = PendingCopies::kMostOfOneBlock;
  const auto data = block_of(2 * kMost * kPage);
  auto* const bytes = data.get();
  for (std::size_t i = 0; i < 2 * kMost; ++i) copy_to(bytes + i * kPage, kPage, 7);
  for (std::size_t i = 0; i < kMost; ++i) read(bytes + i * kPage);
  EXPECT_EQ(reports, 0);
  for (const auto i : {kMost, 2 * kMost - 1}) read(bytes + i * kPage);
  EXPECT_EQ(reports, 2);
  stream.synchronize();
  for (std::size_t i = 0; i < 2 * kMost; ++i) EXPECT_EQ(read(bytes + i * kPage), 7);
  EXPECT_EQ(reports, 2);
}

TEST_F(PinnedGuardTest, AStridedCopyWithManyGapsIsGuardedWhereItBegins) {
  constexpr std::size_t kRows = 10'000;
  const auto data = block_of(2 * kRows * kPage);
  auto* const bytes = data.get();
  const std::int64_t sizes[] = {kRows, kPage};
  const std::int64_t strides[] = {2 * kPage, 1};
  announce(Footprint(bytes, 1, sizes, strides), kCopyWrites);
  write(bytes + kPage, 1);
  read(bytes + 2 * kPage * (kRows - 1));
  EXPECT_EQ(reports, 0);
  read(bytes + 2 * kPage);
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardTest, ASystemCallOnAnotherBlockWorksWhileACopyIsPending) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<Memory> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(block_of(4));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    announce(Footprint(blocks[i].get(), 4), kCopyWrites);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(::write(ends[1], blocks[i].get(), 4), i % 2 == 0 ? -1 : 4) << i;
  close(ends[0]);
  close(ends[1]);
}

TEST_F(PinnedGuardTest, TheSameCopyAgainIsReportedAgain) {
  const auto data = block_of(100);
  for (int i = 1; i <= 3; ++i) {
    copy_to(data.get(), 100, 7);
    read(data.get());
    EXPECT_EQ(reports, i);
  }
}

TEST_F(PinnedGuardTest, ACommandThatWasNotEnqueuedIsWithdrawn) {
  const auto data = block_of(100);
  const auto submission = announce(Footprint(data.get(), 100), kCopyWrites, stream);
  PinnedGuard::get()->withdraw(submission);
  write(data.get(), 1);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, TheLockedBytesAreThoseOfTheProgramsPages) {
  const auto before = pinned_pages::locked_bytes().current;
  const auto data = block_of(2 * kPage);
  EXPECT_EQ(pinned_pages::locked_bytes().current - before, 2 * kPage);
}

TEST_F(PinnedGuardTest, MemoryFromBeforeItWasSwitchedOnWorksAndIsNotGuarded) {
  PinnedGuard::switch_off();
  const auto data = block_of(100);
  PinnedGuard::switch_on(Reaction::kRaise);
  EXPECT_EQ(to_device(data.get()), reinterpret_cast<std::uintptr_t>(data.get()));
  copy_to(data.get(), 100, 7);
  read(data.get());
  stream.synchronize();
  EXPECT_EQ(read(data.get()), 7);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, RegisteredMemoryOfTheProgramWorksAndIsNotGuarded) {
  std::vector<char> memory(1000);
  pinned_pages::add(memory.data(), memory.size());
  copy_to(memory.data(), 1000, 7);
  read(memory.data());
  stream.synchronize();
  EXPECT_EQ(memory[999], 7);
  EXPECT_TRUE(pinned_pages::remove(memory.data()));
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, SwitchedOffItForgetsPendingCopiesAndTheDeviceStillReachesTheMemory) {
  const auto data = block_of(100);
  const Blocker blocker(stream);
  copy_to(data.get(), 100, 7);
  PinnedGuard::switch_off();
  EXPECT_EQ(PinnedGuard::get(), nullptr);
  write(data.get(), 1);
  EXPECT_EQ(reports, 0);
  EXPECT_EQ(*reinterpret_cast<char*>(to_device(data.get())), 1);
}

// Threads use their own bytes of pages that they share, while others protect and open them.
TEST_F(PinnedGuardTest, ThreadsUsePagesWhileOthersProtectAndOpenThem) {
  constexpr int kThreads = 4;
  const std::array<OwnStream, kThreads> streams;
  const auto data = block_of((kThreads + 1) * kPage);
  auto* const bytes = data.get();
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, &own = *streams[t]] {
        for (int round = 0; round < 4; ++round) {
          char* const result = bytes + 32 + kPage * t;
          announce(Footprint(result, kPage), kCopyWrites, own);
          enqueue(own, [=] { *reinterpret_cast<char*>(to_device(result)) = 7; });
          if (t == 0) write(bytes, 1);
          own.synchronize();
          EXPECT_EQ(read(result), 7);
          EXPECT_TRUE(system_reads(result + kPage - 1));
          write(result, 0);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, OfThreadsThatReadTooEarlyAtTheSameTimeOneReports) {
  const auto data = block_of(kPage);
  auto* const bytes = data.get();
  for (int repetition = 0; repetition < 200; ++repetition) {
    reports = 0;
    copy_to(bytes, kPage, 7);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) threads.emplace_back([=] { read(bytes + 100 * t); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(reports, 1);
    stream.synchronize();
  }
}

TEST_F(PinnedGuardTest, ManyBlocksComeAndGoWhileThreadsFault) {
  std::atomic<bool> ends{false};
  std::thread other([&] {
    const auto data = block_of(kPage);
    auto* const bytes = data.get();
    const OwnStream own;
    while (!ends) {
      announce(Footprint(bytes, 8), kCopyWrites, *own);
      write(bytes + 8, 1);
      own->synchronize();
    }
  });
  for (int i = 0; i < 200; ++i) {
    std::vector<Memory> blocks;
    for (int j = 0; j < 8; ++j) blocks.push_back(block_of(kPage << (j % 3)));
    for (const auto& block : blocks) copy_to(block.get(), kPage, 1);
    stream.synchronize();
    for (const auto& block : blocks) EXPECT_EQ(read(block.get()), 1);
    blocks.clear();
  }
  ends = true;
  other.join();
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardTest, AForkedChildHasItsOwnCopyWithoutProtection) {
  const auto data = block_of(2 * kPage);
  auto* const bytes = data.get();
  write(bytes + kPage, 5);
  announce(Footprint(bytes, kPage), kCopyWrites);
  const auto child = fork();
  if (child == 0) {
    const bool shows = read(bytes + kPage) == 5 && read(bytes) == 0;
    write(bytes + kPage, 6);
    write(bytes, 6);
    const auto grandchild = fork();
    if (grandchild == 0) _exit(read(bytes) == 6 && read(bytes + kPage) == 6 ? 0 : 1);
    int status = 1;
    waitpid(grandchild, &status, 0);
    _exit(shows && status == 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(bytes + kPage), 5);
  EXPECT_EQ(reports, 0);
  read(bytes);
  EXPECT_EQ(reports, 1);
}

TEST_F(PinnedGuardDeathTest, WithoutAnExceptionALineExplainsTheFaultThatEndsTheProcess) {
  EXPECT_EXIT(
      {
        PinnedGuard::set_reporter([](const char*, Reaction) noexcept { return false; });
        const auto data = block_of(100);
        copy_to(data.get(), 100, 7);
        read(data.get());
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: the host read pinned memory before it waited for the copy that writes it \\(byte "
      "0 "
      "of the block at 0x[0-9a-f]+; aten::copy_ by train.py:12 in step\\); call "
      "torch.openreg.synchronize\\(\\), event.synchronize\\(\\) or stream.synchronize\\(\\) "
      "first\n$");
}

TEST_F(PinnedGuardTest, AWarningIsGivenOnceForEachCopyAndTheProgramGoesOn) {
  PinnedGuard::switch_on(Reaction::kWarn);
  const auto data = block_of(100);
  announce(Footprint(data.get(), 100), kCopyReads);
  write(data.get(), 1);
  write(data.get(), 2);
  EXPECT_EQ(read(data.get()), 2);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(reports, 0);
}

TEST_F(PinnedGuardDeathTest, AWarningThatCannotBeGivenIsALineAndTheProgramGoesOn) {
  EXPECT_EXIT(
      {
        PinnedGuard::set_reporter(nullptr);
        PinnedGuard::switch_on(Reaction::kWarn);
        const auto data = block_of(100);
        announce(Footprint(data.get(), 100), kCopyReads);
        write(data.get(), 1);
        write(data.get(), 2);
        _exit(read(data.get()));
      },
      ::testing::ExitedWithCode(2),
      "^openreg: the host wrote to pinned memory before it waited for the copy that reads it "
      "[^\n]*\n$");
}

TEST_F(PinnedGuardDeathTest, AHandlerThatTheProgramInstalledMeanwhileGetsOnlyOtherFaults) {
  EXPECT_EXIT(
      {
        const auto data = block_of(100);
        signal(SIGSEGV, [](int) { _exit(42); });
        announce(Footprint(data.get(), 100), kCopyWrites);
        write(data.get(), 1);
        if (reports != 1) _exit(1);
        *static_cast<volatile char*>(nullptr) = 1;
      },
      ::testing::ExitedWithCode(42), "^$");
}

// As Python's faulthandler does, which may be enabled after us.
struct sigaction handler_before;

TEST_F(PinnedGuardDeathTest, AHandlerThatPassesTheSignalOnToOursDoesNotGetItAgain) {
  EXPECT_EXIT(
      {
        PinnedGuard::set_reporter(nullptr);
        const auto data = block_of(100);
        struct sigaction action {};
        action.sa_handler = [](int signal) {
          sigaction(signal, &handler_before, nullptr);
          [[maybe_unused]] const auto written = ::write(STDERR_FILENO, "theirs\n", 7);
          raise(signal);
        };
        action.sa_flags = SA_NODEFER;
        sigaction(SIGSEGV, &action, &handler_before);
        announce(Footprint(data.get(), 100), kCopyWrites);
        read(data.get());
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: the host read pinned memory [^\n]*\ntheirs\n$");
}

TEST_F(PinnedGuardDeathTest, AHandlerOfTheProgramThatReturnsLetsItGoOn) {
  EXPECT_EXIT(
      {
        alarm(20);
        PinnedGuard::set_reporter(nullptr);
        const auto data = block_of(100);
        struct sigaction action {};
        action.sa_handler = [](int) {
          [[maybe_unused]] const auto written = ::write(STDERR_FILENO, "theirs\n", 7);
        };
        sigaction(SIGSEGV, &action, nullptr);
        announce(Footprint(data.get(), 100), kCopyWrites);
        read(data.get());
        _exit(42);
      },
      ::testing::ExitedWithCode(42), "^openreg: the host read pinned memory [^\n]*\ntheirs\n$");
}

TEST_F(PinnedGuardDeathTest, PinnedMemoryThatIsExecutedEndsTheProcess) {
  EXPECT_EXIT(
      {
        alarm(20);
        const auto data = block_of(100);
        announce(Footprint(data.get(), 100), kCopyWrites);
        reinterpret_cast<void (*)()>(data.get())();
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(PinnedGuardDeathTest, APageThatTheProgramHasReplacedEndsTheProcess) {
  EXPECT_EXIT(
      {
        alarm(20);
        const auto data = block_of(100);
        announce(Footprint(data.get(), 100), kCopyWrites);
        const int file = open("/proc/self/exe", O_RDONLY);
        mmap(data.get(), kPage, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0);
        read(data.get() + 50);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(PinnedGuardDeathTest, APageThatTheProgramClosesAgainAndAgainEndsTheProcess) {
  EXPECT_EXIT(
      {
        alarm(60);
        const auto data = block_of(100);
        announce(Footprint(data.get(), 10), kCopyReads);
        for (;;) {
          mprotect(data.get(), kPage, PROT_NONE);
          read(data.get() + 50);
        }
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST_F(PinnedGuardDeathTest, MemoryThatWasFreedToTheSystemFaultsAsBefore) {
  EXPECT_EXIT(
      {
        auto data = block_of(kPage);
        void* const first = data.get();
        announce(Footprint(first, kPage), kCopyWrites);
        data.reset();
        read(first);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST(PinnedWindowsDeathTest, ALimitOfFilesLeavesPinnedMemoryUnguardedAndOneLineSaysSo) {
  if (!PinnedGuard::kAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
  OPENREG_NOT_EMULATED("asks what the instruction does");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGXFSZ, SIG_DFL);
        rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = 4096;
        setrlimit(RLIMIT_FSIZE, &limit);
        HappensBefore::track(true);
        PinnedGuard::switch_on(Reaction::kRaise);
        const auto first = block_of(100);
        const auto second = block_of(100'000);
        write(second.get(), 42);
        _exit(read(second.get()));
      },
      ::testing::ExitedWithCode(42),
      "^openreg: cannot check host accesses to pinned memory: File too large; raise `ulimit "
      "-f`\n$");
}

TEST(PinnedGuardOffTest, UnlessItIsSwitchedOnPinnedMemoryHasOneAddress) {
  EXPECT_EQ(PinnedGuard::get(), nullptr);
  const auto data = block_of(3 * kPage);
  EXPECT_EQ(to_device(data.get()), reinterpret_cast<std::uintptr_t>(data.get()));
}

}  // namespace
}  // namespace openreg::memory
