// Commands that use device memory that is not mapped.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "../not_emulated.h"
#include "address_space/address_space.h"
#include "address_space/device_work.h"
#include "address_space/fault_message.h"
#include "base/error.h"
#include "base/settings.h"
#include "runtime/command_error.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

constexpr std::size_t kPiece = AddressSpace::kGranularity;

// Memory that is no longer there, as the device's code sees it.
volatile char* unmapped(std::size_t pieces = 1, int device = 0) {
  auto& space = AddressSpace::get();
  void* const memory = space.map(device, pieces * kPiece);
  space.unmap(memory, pieces * kPiece);
  return static_cast<volatile char*>(space.aperture(memory));
}

std::string error_of(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const CommandError& error) {
    return error.what();
  }
  return "";
}

class IllegalAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kFaultMessageAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
  }
  Stream& stream_ = default_stream(0);
};

TEST_F(IllegalAccessTest, AReadGivesZeroAndFailsTheStreamOnce) {
  auto* const memory = unmapped();
  std::atomic<int> value = -1;
  std::atomic<bool> later = false;
  enqueue(stream_, [&] { value = memory[100]; });
  enqueue(stream_, [&] { later = true; });
  const auto error = error_of(stream_);
  EXPECT_PRED2(contains, error,
               "test_function failed on openreg:0, stream 0: an illegal memory access was "
               "encountered: the memory at 0x");
  EXPECT_EQ(value, 0);
  EXPECT_FALSE(later);
  enqueue(stream_, [&] { later = true; });
  EXPECT_EQ(error_of(stream_), "");
  EXPECT_TRUE(later);
}

TEST_F(IllegalAccessTest, AWriteHasNoEffectOnWhatIsMappedThereLater) {
  auto& space = AddressSpace::get();
  auto* const memory = unmapped(3);
  enqueue(stream_, [&] {
    for (std::size_t i = 0; i < 3 * kPiece; i += 512) memory[i] = 7;
  });
  EXPECT_NE(error_of(stream_), "");
  void* const again = space.map(0, 3 * kPiece);
  ASSERT_EQ(space.aperture(again), const_cast<char*>(memory));
  int sum = 0;
  for (std::size_t i = 0; i < 3 * kPiece; i += 512) sum += memory[i];
  EXPECT_EQ(sum, 0);
  space.unmap(again, 3 * kPiece);
}

TEST_F(IllegalAccessTest, EachOneIsNoticed) {
  auto* const memory = unmapped();
  for (int i = 0; i < 3; ++i) {
    enqueue(stream_, [&] { memory[0] = memory[1] + 1; });
    EXPECT_NE(error_of(stream_), "") << i;
  }
}

TEST_F(IllegalAccessTest, TheAddressIsThatOfTheWindow) {
  auto* const memory = unmapped();
  char text[32];
  std::snprintf(text, sizeof text, "%p",
                AddressSpace::get().window(const_cast<char*>(memory) + 4242));
  enqueue(stream_, [&] { static_cast<void>(memory[4242]); });
  EXPECT_PRED2(contains, error_of(stream_), std::string("at ") + text + " of openreg:0");
}

TEST_F(IllegalAccessTest, AThreadThatHelpsACommandFailsThatCommand) {
  auto* const memory = unmapped();
  enqueue(stream_, [&] { std::thread([&] { static_cast<void>(memory[0]); }).join(); });
  const auto error = error_of(stream_);
  EXPECT_PRED2(contains, error, "illegal memory access");
  EXPECT_FALSE(contains(error, "another command"));
}

TEST_F(IllegalAccessTest, AnExceptionThatItCausedIsNotTheError) {
  auto* const memory = unmapped();
  enqueue(stream_, [&] {
    if (memory[0] == 0) throw std::runtime_error("an index is out of range");
  });
  EXPECT_PRED2(contains, error_of(stream_), "illegal memory access");
}

TEST_F(IllegalAccessTest, MemoryThatIsMappedInTheMeantimeIsNotTouched) {
  auto& space = AddressSpace::get();
  std::atomic<bool> stop = false;
  auto* const other = unmapped(8);
  std::thread mapper([&] {
    while (!stop) {
      void* const memory = space.map(0, kPiece);
      auto* const bytes = static_cast<volatile char*>(space.aperture(memory));
      bytes[0] = 1;
      if (bytes[0] != 1 || bytes[kPiece - 1] != 0) std::abort();
      space.unmap(memory, kPiece);
    }
  });
  for (int i = 0; i < 200; ++i) {
    enqueue(stream_, [&] {
      for (std::size_t at = 0; at < 8 * kPiece; at += kPiece)
        static_cast<void>(other[at + kPiece - 1]);
    });
    error_of(stream_);
  }
  stop = true;
  mapper.join();
}

TEST_F(IllegalAccessTest, AHostThatDoesDeviceWorkGetsTheError) {
  auto* const memory = unmapped(1, 1);
  DeviceWorkScope work({.name = "copy", .device = 1});
  EXPECT_NO_THROW(work.check());
  static_cast<void>(memory[0]);
  EXPECT_THROW(work.check(), Error);
  EXPECT_NO_THROW(work.check());
}

TEST_F(IllegalAccessTest, ScopesNest) {
  auto* const memory = unmapped();
  DeviceWorkScope outer({.name = "outer"});
  {
    DeviceWorkScope inner({.name = "inner"});
    static_cast<void>(memory[0]);
    EXPECT_TRUE(inner.is_illegal());
    EXPECT_THROW(inner.check(), Error);
  }
  EXPECT_FALSE(outer.is_illegal());
  static_cast<void>(memory[0]);
  {
    DeviceWorkScope inner({.name = "inner"});
    EXPECT_FALSE(inner.is_illegal());
  }
  EXPECT_THROW(outer.check(), Error);
}

class IllegalAccessDeathTest : public IllegalAccessTest {
 protected:
  void SetUp() override {
    OPENREG_NOT_EMULATED("dies by a signal without other output");
    IllegalAccessTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(IllegalAccessDeathTest, WhatIsNoDevicesDiesWithALineThatNamesTheCommand) {
  EXPECT_EXIT(
      {
        auto& stream = create_stream(1);
        AddressSpace::get();
        static_cast<void>(unmapped());
        enqueue(stream, [] { *reinterpret_cast<volatile char*>(64) = 1; });
        stream.synchronize();
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: test_function on openreg:1, stream [0-9]+, accessed invalid memory "
      "\\(address 0x40\\)\n$");
}

TEST_F(IllegalAccessDeathTest, AHandlerThatRaisesTheSignalAgainGetsALineToo) {
  EXPECT_EXIT(
      {
        auto& stream = default_stream(0);
        auto* const memory = unmapped();
        static struct sigaction before;
        struct sigaction action {};
        action.sa_handler = [](int) {
          sigaction(SIGSEGV, &before, nullptr);
          raise(SIGSEGV);
        };
        sigaction(SIGSEGV, &action, &before);
        enqueue(stream, [=] { static_cast<void>(memory[0]); });
        stream.synchronize();
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: test_function on openreg:0, stream 0, was killed by a signal\n$");
}

TEST_F(IllegalAccessDeathTest, AThreadWithoutACommandDiesWithALine) {
  EXPECT_EXIT(static_cast<void>(unmapped(1, 1)[0]), ::testing::KilledBySignal(SIGSEGV),
              "^openreg: a thread that runs no command on openreg:1, accessed unallocated memory "
              "\\(address 0x[0-9a-f]+\\)\n$");
}

TEST_F(IllegalAccessDeathTest, TooManyWritesDieWithALine) {
  EXPECT_EXIT(
      {
        auto* const memory = unmapped(600);
        enqueue(default_stream(0), [=] {
          for (std::size_t i = 0; i < 600; ++i) memory[i * kPiece] = 1;
        });
        default_stream(0).synchronize();
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: test_function on openreg:0, stream 0, accessed invalid memory .*\n$");
}

}  // namespace
}  // namespace openreg
