#include "address_space/ipc_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <latch>
#include <span>
#include <string>
#include <vector>

#include "../../not_emulated.h"
#include "../../text.h"
#include "../limit.h"
#include "address_space/address_space.h"
#include "address_space/fault_message.h"
#include "base/error.h"
#include "base/thread.h"

namespace openreg {
namespace {

using testing::contains;

constexpr std::size_t kPiece = AddressSpace::kGranularity;

// Memory of device 0.
class Memory {
 public:
  explicit Memory(std::size_t pieces)
      : bytes(pieces * kPiece), begin(AddressSpace::get().map(0, bytes)) {}
  ~Memory() { AddressSpace::get().unmap(begin, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(begin) + offset; }
  std::span<std::uint64_t> words() const {
    return {static_cast<std::uint64_t*>(AddressSpace::get().aperture(begin)), bytes / 8};
  }
  std::size_t offset_in_file() const {
    return reinterpret_cast<std::uintptr_t>(begin) - AddressSpace::get().window_begin(0);
  }

  const std::size_t bytes;
  void* const begin;
};

std::uint64_t word_in_file(const IpcFile& file, std::size_t offset) {
  std::uint64_t word = 0;
  EXPECT_EQ(pread(file.descriptor(), &word, sizeof word, static_cast<off_t>(offset)), sizeof word);
  return word;
}

std::size_t bytes_in_file(const IpcFile& file) {
  struct stat status {};
  EXPECT_EQ(fstat(file.descriptor(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(IpcMemory, SharedMemoryKeepsContentsAndAddress) {
  const Memory memory(3);
  for (std::size_t i = 0; i < memory.words().size(); ++i) memory.words()[i] = i;
  auto& file = AddressSpace::get().share(memory.begin, memory.bytes);
  for (std::size_t i = 0; i < memory.words().size(); ++i) ASSERT_EQ(memory.words()[i], i);
  const std::size_t last = memory.bytes - 8;
  EXPECT_EQ(word_in_file(file, memory.offset_in_file() + last), last / 8);
  memory.words()[5] = 7;
  EXPECT_EQ(word_in_file(file, memory.offset_in_file() + 40), 7) << "written later";
}

TEST(IpcMemory, OnlyThePiecesAroundABlockAreShared) {
  const Memory memory(4);
  std::ranges::fill(memory.words(), 3);
  const auto before = AddressSpace::get().share(memory.at(kPiece + 512), 512).name();
  auto& file = AddressSpace::get().share(memory.at(kPiece + 512), 512);
  EXPECT_EQ(file.name().descriptor, before.descriptor) << "one file for the device";
  EXPECT_EQ(word_in_file(file, memory.offset_in_file() + kPiece), 3);
  EXPECT_EQ(word_in_file(file, memory.offset_in_file()), 0);
  EXPECT_EQ(word_in_file(file, memory.offset_in_file() + 2 * kPiece), 0);
}

TEST(IpcMemory, MemoryIsCopiedOnlyOnce) {
  const Memory memory(2);
  auto& file = AddressSpace::get().share(memory.begin, memory.bytes);
  const auto size = bytes_in_file(file);
  memory.words()[0] = 1;
  AddressSpace::get().share(memory.begin, memory.bytes);
  EXPECT_EQ(bytes_in_file(file), size);
  EXPECT_EQ(memory.words()[0], 1);
}

TEST(IpcMemory, UnmappedMemoryLeavesTheFileAndComesBackAsZeros) {
  auto& space = AddressSpace::get();
  void* const begin = space.map(0, 2 * kPiece);
  std::memset(space.aperture(begin), 1, 2 * kPiece);
  auto& file = space.share(begin, 2 * kPiece);
  const auto with = bytes_in_file(file);
  space.unmap(begin, 2 * kPiece);
  EXPECT_EQ(with - bytes_in_file(file), 2 * kPiece);
  void* const again = space.map(0, 2 * kPiece);
  ASSERT_EQ(again, begin);
  EXPECT_EQ(*static_cast<char*>(space.aperture(again)), 0);
  space.share(again, 1);
  *static_cast<char*>(space.aperture(again)) = 5;
  const auto offset = reinterpret_cast<std::uintptr_t>(again) - space.window_begin(0);
  EXPECT_EQ(word_in_file(file, offset), 5);
  space.unmap(again, 2 * kPiece);
}

TEST(IpcMemory, MemoryGrowsBehindWhatIsShared) {
  auto& space = AddressSpace::get();
  void* const begin = space.map(0, kPiece);
  space.share(begin, kPiece);
  auto* const end = static_cast<std::byte*>(begin) + kPiece;
  ASSERT_TRUE(space.extend(end, kPiece));
  *static_cast<char*>(space.aperture(end)) = 9;
  auto& file = space.share(end, 1);
  EXPECT_EQ(word_in_file(file, reinterpret_cast<std::uintptr_t>(end) - space.window_begin(0)), 9);
  space.unmap(begin, 2 * kPiece);
}

TEST(IpcMemory, AnotherMappingOfTheFileIsTheSameMemory) {
  auto& space = AddressSpace::get();
  const Memory memory(2);
  memory.words()[0] = 4;
  auto& file = space.share(memory.begin, memory.bytes);
  const auto mapped = space.mapped(0);
  void* const foreign = space.map_foreign(0, file, memory.offset_in_file(), memory.bytes);
  ASSERT_NE(foreign, nullptr);
  EXPECT_EQ(space.device_of(foreign), 0);
  EXPECT_EQ(space.mapped(0), mapped) << "it is not of the device's capacity";
  auto* const words = static_cast<std::uint64_t*>(space.aperture(foreign));
  EXPECT_EQ(words[0], 4);
  words[1] = 6;
  EXPECT_EQ(memory.words()[1], 6);
  space.unmap_foreign(foreign, memory.bytes);
}

// Like a program that sends from the thread of a queue: no write may be lost, at whatever time it
// happens.
TEST(IpcMemory, WritesOfOtherThreadsAreHeldUpAndNotLostWhileMemoryMoves) {
  constexpr int kWriters = 2;
  constexpr std::size_t kPieces = 4;
  for (int round = 0; round < 40; ++round) {
    const Memory memory(kPieces);
    const auto words = memory.words();
    std::atomic<bool> moved{false};
    std::latch writing(kWriters + 1);
    std::latch done(kWriters);
    std::vector<std::uint64_t> rounds(kWriters);
    for (int writer = 0; writer < kWriters; ++writer) {
      start_detached_thread("writer", [&, writer] {  // as engines are
        // Each thread counts up its own word of each page: a lost write is a missing number.
        const auto first = static_cast<std::size_t>(writer);
        auto& count = rounds[first];
        const auto pass = [&] {
          ++count;
          for (std::size_t i = first; i < words.size(); i += 512)
            std::atomic_ref(words[i]).fetch_add(1, std::memory_order_relaxed);
        };
        pass();
        writing.arrive_and_wait();
        while (!moved) pass();
        pass();
        done.count_down();
      });
    }
    writing.arrive_and_wait();
    AddressSpace::get().share(memory.begin, memory.bytes);
    moved = true;
    done.wait();
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      for (std::size_t i = writer; i < words.size(); i += 512)
        ASSERT_EQ(words[i], rounds[writer]) << "round " << round << ", word " << i;
    }
  }
}

TEST(IpcMemory, MemoryThatTheSystemRefusesIsAnErrorAndStaysUsable) {
  const Memory memory(2);
  std::ranges::fill(memory.words(), 8);
  AddressSpace::get().share(memory.begin, 1);
  std::string error;
  try {
    const testing::Limit small(RLIMIT_FSIZE, 4096);
    AddressSpace::get().share(memory.begin, memory.bytes);
  } catch (const Error& refused) {
    error = refused.what();
  }
  EXPECT_PRED2(contains, error, "cannot share device memory with other processes: File too large");
  EXPECT_EQ(std::ranges::count(memory.words(), 8), memory.words().size());
  memory.words().back() = 9;
  auto& file = AddressSpace::get().share(memory.begin, memory.bytes);
  EXPECT_EQ(word_in_file(file, memory.offset_in_file() + memory.bytes - 8), 9) << "tried again";
}

volatile char g_sink;

void read_byte(const void* address) { g_sink = *static_cast<const volatile char*>(address); }

TEST(IpcMemoryDeathTest, AnAccessThatIsNoneOfItsEndsAsBefore) {
  OPENREG_NOT_EMULATED("dies by a signal without other output");
  if (!kFaultMessageAvailable) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for its own reports";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Memory memory(1);
        AddressSpace::get().share(memory.begin, 1);
        read_byte(memory.begin);
      },
      ::testing::KilledBySignal(SIGSEGV),
      "^openreg: host code accessed device memory of openreg:0");
  EXPECT_EXIT(
      {
        const Memory memory(1);
        AddressSpace::get().share(memory.begin, 1);
        read_byte(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(
      {
        const Memory memory(1);
        AddressSpace::get().share(memory.begin, 1);
        raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace openreg
