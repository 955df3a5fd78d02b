#include "address_space/address_space.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../../not_emulated.h"
#include "address_space/fault_message.h"
#include "base/error.h"
#include "base/settings.h"

namespace openreg {
namespace {

constexpr std::size_t kGranularity = AddressSpace::kGranularity;
constexpr std::size_t kGiB = std::size_t{1} << 30;

std::span<unsigned char> memory_of(const AddressSpace& space, void* segment, std::size_t bytes) {
  return {static_cast<unsigned char*>(space.aperture(segment)), bytes};
}

char* offset(void* pointer, std::size_t bytes) { return static_cast<char*>(pointer) + bytes; }

TEST(AddressSpace, MemoryIsZeroedAndHoldsWhatIsWritten) {
  auto& space = AddressSpace::get();
  for (int device = 0; device < space.devices(); ++device) {
    void* const segment = space.map(device, 100);
    ASSERT_NE(segment, nullptr);
    const auto memory = memory_of(space, segment, kGranularity);  // rounded up from 100
    EXPECT_EQ(std::ranges::count(memory, 0), kGranularity);
    std::ranges::fill(memory, static_cast<unsigned char>(device + 1));
    EXPECT_EQ(memory.front(), device + 1);
    EXPECT_EQ(memory.back(), device + 1);
    space.unmap(segment, kGranularity);
  }
}

TEST(AddressSpace, EveryByteOfASegmentResolvesToItsDevice) {
  auto& space = AddressSpace::get();
  for (int device = 0; device < space.devices(); ++device) {
    void* const segment = space.map(device, 3 * kGranularity);
    ASSERT_NE(segment, nullptr);
    EXPECT_EQ(space.device_of(segment), device);
    EXPECT_EQ(space.device_of(offset(segment, kGranularity + 1)), device);
    EXPECT_EQ(space.device_of(offset(segment, 3 * kGranularity - 1)), device);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment) % kGranularity, 0);
    space.unmap(segment, 3 * kGranularity);
  }
}

TEST(AddressSpace, NeighboursOfTheWindowsAreNoDevicePointers) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(0, 1);
  ASSERT_NE(segment, nullptr);
  void* const first = reinterpret_cast<void*>(space.window_begin(0));
  const auto all_windows = static_cast<std::size_t>(space.devices()) * space.window_bytes();
  EXPECT_EQ(space.device_of(first), 0);
  EXPECT_EQ(space.device_of(offset(first, space.window_bytes() - 1)), 0);
  EXPECT_EQ(space.device_of(offset(first, space.window_bytes())), 1);
  EXPECT_EQ(space.device_of(offset(first, all_windows - 1)), space.devices() - 1);
  EXPECT_EQ(space.device_of(offset(first, all_windows)), -1);
  EXPECT_EQ(space.device_of(reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(first) - 1)),
            -1);
  EXPECT_EQ(space.device_of(space.aperture(first)), -1);
  EXPECT_EQ(space.device_of(&space), -1);
  EXPECT_EQ(space.device_of(nullptr), -1);
  space.unmap(segment, kGranularity);
}

TEST(AddressSpace, WindowAndApertureAreInverse) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(1, kGranularity);
  ASSERT_NE(segment, nullptr);
  EXPECT_NE(space.aperture(segment), segment);
  EXPECT_EQ(space.window(space.aperture(segment)), segment);
  EXPECT_EQ(space.aperture(offset(segment, 5)), offset(space.aperture(segment), 5));
  EXPECT_EQ(space.aperture(nullptr), nullptr);
  EXPECT_EQ(space.window(nullptr), nullptr);
  space.unmap(segment, kGranularity);
}

TEST(AddressSpace, TheWindowIsAPowerOfTwoWithRoomToExtendWhereTheSystemAllowsIt) {
  auto& space = AddressSpace::get();
  EXPECT_EQ(space.devices(), settings().devices);
  EXPECT_EQ(space.capacity() % kGranularity, 0);
  EXPECT_GE(space.window_bytes(), space.capacity());
  EXPECT_TRUE(std::has_single_bit(space.window_bytes()));
  if (kFaultMessageAvailable) {
    EXPECT_GE(space.window_bytes(), 8 * space.capacity());
  }
}

TEST(AddressSpace, BeyondTheCapacityThereIsNoMemoryAndNothingChanges) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(0, kGranularity);
  ASSERT_NE(segment, nullptr);
  memory_of(space, segment, 1)[0] = 7;
  for (const std::size_t bytes : {space.capacity(), space.capacity() + 1, SIZE_MAX}) {
    EXPECT_EQ(space.map(0, bytes), nullptr) << bytes;
  }
  EXPECT_EQ(space.mapped(0), kGranularity);
  EXPECT_EQ(memory_of(space, segment, 1)[0], 7);
  void* const other = space.map(0, kGranularity);
  EXPECT_NE(other, nullptr);
  space.unmap(other, kGranularity);
  space.unmap(segment, kGranularity);
  EXPECT_EQ(space.mapped(0), 0);
}

TEST(AddressSpace, ADeviceThatDoesNotExistIsAnError) {
  auto& space = AddressSpace::get();
  for (const int device : {-1, space.devices()}) {
    try {
      space.map(device, 1);
      FAIL() << device;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "openreg: device index out of range (got " +
                                               std::to_string(device) + ", expected 0 to " +
                                               std::to_string(space.devices() - 1) + ")");
    }
  }
}

TEST(AddressSpace, AnUnmappedRangeIsReusedZeroed) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(0, 2 * kGranularity);
  ASSERT_NE(segment, nullptr);
  std::ranges::fill(memory_of(space, segment, 2 * kGranularity), static_cast<unsigned char>(0xA5));
  space.unmap(segment, 2 * kGranularity);
  EXPECT_EQ(space.mapped(0), 0);
  EXPECT_EQ(space.map(0, 2 * kGranularity), segment);
  EXPECT_EQ(std::ranges::count(memory_of(space, segment, 2 * kGranularity), 0), 2 * kGranularity);
  space.unmap(segment, 2 * kGranularity);
}

TEST(AddressSpace, MemoryIsExtendedInPlaceAndGoesBackInAnyPieces) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(0, kGranularity);
  ASSERT_NE(segment, nullptr);
  memory_of(space, segment, 1)[0] = 7;
  ASSERT_TRUE(space.extend(offset(segment, kGranularity), 2 * kGranularity));
  EXPECT_EQ(space.mapped(0), 3 * kGranularity);
  EXPECT_EQ(memory_of(space, segment, 1)[0], 7);
  const auto more = memory_of(space, offset(segment, kGranularity), 2 * kGranularity);
  EXPECT_EQ(std::ranges::count(more, 0), 2 * kGranularity);
  more.back() = 8;

  space.unmap(offset(segment, kGranularity), kGranularity);
  EXPECT_EQ(space.mapped(0), 2 * kGranularity);
  EXPECT_EQ(memory_of(space, segment, 1)[0], 7);
  EXPECT_EQ(more.back(), 8);
  EXPECT_FALSE(space.extend(offset(segment, kGranularity), 2 * kGranularity)) << "not all is free";
  EXPECT_FALSE(space.extend(offset(segment, kGranularity), space.capacity()));
  EXPECT_EQ(space.mapped(0), 2 * kGranularity);
  EXPECT_TRUE(space.extend(offset(segment, kGranularity), kGranularity));
  space.unmap(segment, 3 * kGranularity);
  EXPECT_EQ(space.mapped(0), 0);
}

TEST(AddressSpace, MemoryIsMappedAnywhereInReservedAddressesWhichStayReserved) {
  auto& space = AddressSpace::get();
  const auto reserved = space.reserve_range(0, 4 * kGranularity, kGranularity);
  ASSERT_EQ(reserved.bytes, 4 * kGranularity);
  void* const begin = reinterpret_cast<void*>(reserved.begin);
  const std::size_t before = space.mapped(0);
  ASSERT_TRUE(space.map_reserved(offset(begin, kGranularity), 2 * kGranularity));
  EXPECT_EQ(space.mapped(0), before + 2 * kGranularity);
  std::ranges::fill(memory_of(space, offset(begin, kGranularity), 2 * kGranularity), 1);

  space.unmap(offset(begin, 2 * kGranularity), kGranularity);
  EXPECT_FALSE(space.extend(offset(begin, 2 * kGranularity), kGranularity)) << "it is reserved";
  EXPECT_FALSE(space.map_reserved(begin, space.capacity())) << "more than the capacity";
  ASSERT_TRUE(space.map_reserved(offset(begin, 2 * kGranularity), kGranularity));
  EXPECT_EQ(memory_of(space, offset(begin, 2 * kGranularity), 1)[0], 0);

  space.unmap(offset(begin, kGranularity), 2 * kGranularity);
  space.unreserve_range(reserved.begin, reserved.bytes);
  EXPECT_EQ(space.mapped(0), before);
  void* const second = offset(begin, kGranularity);
  EXPECT_TRUE(space.extend(second, kGranularity));
  space.unmap(second, kGranularity);
}

TEST(AddressSpace, UnmappedMemoryGoesBackToTheSystem) {
  auto& space = AddressSpace::get();
  void* const segment = space.map(0, kGranularity);
  ASSERT_NE(segment, nullptr);
  std::memset(space.aperture(segment), 1, kGranularity);
  unsigned char resident = 0;
  ASSERT_EQ(mincore(space.aperture(segment), 1, &resident), 0);
  EXPECT_EQ(resident & 1, 1);
  space.unmap(segment, kGranularity);
  EXPECT_TRUE(mincore(space.aperture(segment), 1, &resident) != 0 || (resident & 1) == 0);
}

TEST(AddressSpace, AForkedChildKnowsDevicePointersButHasNotTheirMemory) {
  OPENREG_NOT_EMULATED("MADV_DONTFORK");
  auto& space = AddressSpace::get();
  void* const segment = space.map(1, kGranularity);
  ASSERT_NE(segment, nullptr);
  std::memset(space.aperture(segment), 1, kGranularity);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char resident = 0;
    const bool absent = mincore(space.aperture(segment), 1, &resident) != 0 && errno == ENOMEM;
    _exit(absent && space.device_of(segment) == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(memory_of(space, segment, 1)[0], 1);
  space.unmap(segment, kGranularity);
}

TEST(AddressSpace, ThreadsMapAndUnmapWithoutSharingMemory) {
  auto& space = AddressSpace::get();
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  std::array<int, kThreads> damaged{};
  {
    std::vector<std::jthread> threads;
    for (int id = 0; id < kThreads; ++id) {
      threads.emplace_back([&space, &damaged, id] {
        const auto mark = static_cast<unsigned char>(id + 1);
        for (int round = 0; round < kRounds; ++round) {
          const std::size_t bytes = static_cast<std::size_t>(1 + round % 3) * kGranularity;
          void* const segment = space.map(id % space.devices(), bytes);
          if (segment == nullptr) {
            ++damaged[static_cast<std::size_t>(id)];
            continue;
          }
          const auto memory = memory_of(space, segment, bytes);
          const bool fresh = memory.front() == 0 && memory.back() == 0;
          memory.front() = memory.back() = mark;
          std::this_thread::yield();
          if (!fresh || memory.front() != mark || memory.back() != mark)
            ++damaged[static_cast<std::size_t>(id)];
          space.unmap(segment, bytes);
        }
      });
    }
  }
  EXPECT_EQ(damaged, (std::array<int, kThreads>{}));
  for (int device = 0; device < space.devices(); ++device) EXPECT_EQ(space.mapped(device), 0);
}

// These need a process whose address space is not reserved yet.
class AddressSpaceDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void limit_addresses(std::size_t bytes) {
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  }

  // Exits with 0 if a device works and has `window` bytes of addresses and of memory.
  [[noreturn]] static void exit_after_use(std::size_t window) {
    auto& space = AddressSpace::get();
    void* const segment = space.map(1, 64 * kGranularity);
    if (segment == nullptr) std::exit(3);
    std::memset(space.aperture(segment), 1, 64 * kGranularity);
    space.unmap(segment, 64 * kGranularity);
    std::exit(space.window_bytes() == window && space.capacity() == window ? 0 : 4);
  }
};

TEST_F(AddressSpaceDeathTest, NothingIsReservedBeforeFirstUse) {
  EXPECT_EXIT(
      {
        if (AddressSpace::get_if_reserved() != nullptr) std::exit(1);
        auto& space = AddressSpace::get();
        std::exit(AddressSpace::get_if_reserved() == &space ? 0 : 2);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(AddressSpaceDeathTest, WindowsShrinkUnderALimitOfAddressesAndOneLineSaysSo) {
  OPENREG_NOT_EMULATED("limits addresses");
  if (!kFaultMessageAvailable)
    GTEST_SKIP() << "a sanitizer needs more addresses than any limit leaves";
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_DEVICES", "2", 1);
        setenv("TORCH_OPENREG_MEMORY", "64GiB", 1);
        limit_addresses(10 * kGiB);
        exit_after_use(2 * kGiB);
      },
      testing::ExitedWithCode(0),
      "^openreg: only 2.00 GiB of address space could be reserved per device, instead of 64.00 "
      "GiB; each device has 2.00 GiB of memory; raise `ulimit -v` for more\n$");
}

TEST_F(AddressSpaceDeathTest, BelowOneGibibyteOfAddressesPerDeviceIsAnError) {
  OPENREG_NOT_EMULATED("limits addresses");
  if (!kFaultMessageAvailable)
    GTEST_SKIP() << "a sanitizer needs more addresses than any limit leaves";
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_DEVICES", "2", 1);
        setenv("TORCH_OPENREG_MEMORY", "64GiB", 1);
        limit_addresses(3 * kGiB);
        try {
          AddressSpace::get();
        } catch (const Error& error) {
          std::fputs(error.what(), stderr);
          std::exit(0);
        }
      },
      testing::ExitedWithCode(0),
      "^openreg: cannot reserve 4.00 GiB of address space for 2 devices: Cannot allocate memory; "
      "raise `ulimit -v`, or lower TORCH_OPENREG_DEVICES or TORCH_OPENREG_MEMORY$");
}

TEST_F(AddressSpaceDeathTest, TheWholeCapacityCanBeMappedAndNoMore) {
  EXPECT_EXIT(
      {
        setenv("TORCH_OPENREG_MEMORY", "7MiB", 1);  // rounded down to three granules
        auto& space = AddressSpace::get();
        const bool three =
            space.map(0, kGranularity) != nullptr && space.map(0, 2 * kGranularity) != nullptr;
        std::exit(three && space.map(0, 1) == nullptr && space.mapped(0) == space.capacity() &&
                          space.map(1, 1) != nullptr
                      ? 0
                      : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(AddressSpaceDeathTest, UnmappingWhatIsNotMappedEndsTheProcess) {
  EXPECT_DEATH(
      {
        auto& space = AddressSpace::get();
        space.unmap(space.map(0, 2 * kGranularity), 3 * kGranularity);
      },
      "");
}

}  // namespace
}  // namespace openreg
