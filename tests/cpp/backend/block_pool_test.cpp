#include "backend/block_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/error.h"

namespace openreg::backend {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A device of some MiB whose memory is only numbers, and whose marks pass when the test says so.
class FakeDevice final : public PoolBacking {
 public:
  explicit FakeDevice(std::size_t capacity = 64 * kMiB) : free_(capacity) {}

  void* map(std::size_t bytes) override {
    mapped_sizes.push_back(bytes);
    if (bytes > free_) return nullptr;
    free_ -= bytes;
    next_ += bytes + kMiB;  // never adjacent
    sizes_.emplace_back(next_, bytes);
    return reinterpret_cast<void*>(next_);
  }
  void unmap(void* segment) noexcept override {
    for (const auto& [address, bytes] : sizes_) {
      if (reinterpret_cast<void*>(address) == segment) free_ += bytes;
    }
    ++unmapped;
  }
  std::unique_ptr<Mark> mark(Stream&) override {
    if (marks_throw) throw std::runtime_error("no marks");
    auto passed = std::make_shared<bool>(false);
    marks.push_back(passed);
    return std::make_unique<FakeMark>(passed);
  }

  std::vector<std::size_t> mapped_sizes;
  std::vector<std::shared_ptr<bool>> marks;
  int unmapped = 0;
  bool marks_throw = false;

 private:
  struct FakeMark final : Mark {
    explicit FakeMark(std::shared_ptr<bool> flag) : flag(std::move(flag)) {}
    bool passed() const noexcept override { return *flag; }
    std::shared_ptr<bool> flag;
  };

  std::size_t free_;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
  std::vector<std::pair<std::uintptr_t, std::size_t>> sizes_;
};

class BlockPoolTest : public testing::Test {
 protected:
  // The pool never looks into a stream: any two addresses will do.
  static Stream& stream(int i) {
    static char streams[4];
    return reinterpret_cast<Stream&>(streams[i]);
  }
  void* allocate(std::size_t bytes, int on = 0) { return pool.allocate(bytes, stream(on)); }
  const PoolStatistics& statistics() { return pool.statistics(); }

  FakeDevice device;
  BlockPool pool{device};
};

std::ptrdiff_t distance(void* from, void* to) {
  return static_cast<std::byte*>(to) - static_cast<std::byte*>(from);
}

TEST_F(BlockPoolTest, FreedMemoryIsReusedAtOnceByItsOwnStream) {
  void* first = allocate(1000);
  pool.free(first);
  EXPECT_EQ(allocate(1000), first);
  EXPECT_EQ(device.mapped_sizes.size(), 1U);
}

TEST_F(BlockPoolTest, FreedMemoryIsNotReusedByAnotherStream) {
  void* first = allocate(1000, 0);
  pool.free(first);
  EXPECT_NE(allocate(1000, 1), first);
  EXPECT_EQ(device.mapped_sizes.size(), 2U);
}

TEST_F(BlockPoolTest, SmallBlocksShareASegmentInSteps) {
  void* a = allocate(1);
  void* b = allocate(513);
  void* c = allocate(512);
  EXPECT_EQ(distance(a, b), 512);
  EXPECT_EQ(distance(b, c), 1024);
  EXPECT_EQ(device.mapped_sizes, std::vector<std::size_t>{2 * kMiB});
}

TEST_F(BlockPoolTest, ALargeBlockHasASegmentOfItsOwn) {
  allocate(kMiB);
  allocate(kMiB + 1);
  allocate(5 * kMiB + 1);
  EXPECT_EQ(device.mapped_sizes, (std::vector<std::size_t>{2 * kMiB, 2 * kMiB, 6 * kMiB}));
}

TEST_F(BlockPoolTest, TheBestFitIsTaken) {
  void* big = allocate(8 * kMiB);
  void* fit = allocate(4 * kMiB);
  pool.free(big);
  pool.free(fit);
  EXPECT_EQ(allocate(4 * kMiB), fit);
}

TEST_F(BlockPoolTest, TheRestOfALargeBlockIsKept) {
  void* big = allocate(8 * kMiB);
  pool.free(big);
  EXPECT_EQ(allocate(3 * kMiB), big);
  EXPECT_EQ(distance(big, allocate(3 * kMiB)), static_cast<std::ptrdiff_t>(3 * kMiB));
  EXPECT_EQ(device.mapped_sizes.size(), 1U);
}

TEST_F(BlockPoolTest, NeighboursMergeWhateverTheOrderOfTheirFrees) {
  for (const auto& order :
       std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    FakeDevice fresh;
    BlockPool merging(fresh);
    void* blocks[] = {merging.allocate(kMiB / 2, stream(0)), merging.allocate(kMiB / 2, stream(0)),
                      merging.allocate(kMiB, stream(0))};
    for (int i : order) merging.free(blocks[i]);
    const auto unused = merging.detach_unused();
    EXPECT_EQ(unused.size(), 1U);
    merging.release(unused);
    EXPECT_EQ(fresh.unmapped, 1);
    EXPECT_EQ(merging.statistics().inactive_split.all.current, 0);
  }
}

TEST_F(BlockPoolTest, ABlockThatAnotherStreamUsedWaitsForItsMark) {
  void* block = allocate(1000, 0);
  pool.record_stream(block, stream(1));
  pool.free(block);
  ASSERT_EQ(device.marks.size(), 1U);
  EXPECT_NE(allocate(1000, 0), block);
  EXPECT_EQ(statistics().active.all.current, 2);
  EXPECT_EQ(statistics().allocation.all.current, 1);
  *device.marks[0] = true;
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(BlockPoolTest, ABlockThatTwoStreamsUsedWaitsForBoth) {
  void* block = allocate(1000, 0);
  pool.record_stream(block, stream(1));
  pool.record_stream(block, stream(2));
  pool.record_stream(block, stream(1));
  pool.free(block);
  ASSERT_EQ(device.marks.size(), 2U);
  *device.marks[1] = true;
  EXPECT_NE(allocate(1000, 0), block);
  *device.marks[0] = true;
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(BlockPoolTest, RecordingTheOwnStreamCostsNothing) {
  void* block = allocate(1000, 0);
  pool.record_stream(block, stream(0));
  pool.free(block);
  EXPECT_TRUE(device.marks.empty());
  EXPECT_EQ(allocate(1000, 0), block);
}

TEST_F(BlockPoolTest, UsersAreForgottenWithTheBlock) {
  void* block = allocate(1000, 0);
  pool.record_stream(block, stream(1));
  pool.free(block);
  *device.marks.at(0) = true;
  ASSERT_EQ(allocate(1000, 0), block);
  pool.free(block);
  EXPECT_EQ(device.marks.size(), 1U);
}

TEST_F(BlockPoolTest, AFreeWhoseMarkFailsLeavesTheBlockHeld) {
  void* block = allocate(1000, 0);
  pool.record_stream(block, stream(1));
  device.marks_throw = true;
  EXPECT_THROW(pool.free(block), std::runtime_error);
  EXPECT_EQ(statistics().allocation.all.current, 1);
  device.marks_throw = false;
  EXPECT_EQ(pool.free(block), 1024U);
}

TEST_F(BlockPoolTest, OnlySegmentsThatNobodyHoldsAPartOfAreGivenBack) {
  void* held = allocate(512);
  pool.free(allocate(512));
  pool.free(allocate(4 * kMiB));
  auto unused = pool.detach_unused();
  EXPECT_EQ(unused.size(), 1U);
  EXPECT_EQ(statistics().reserved_bytes.all.current, static_cast<std::int64_t>(6 * kMiB));
  pool.release(unused);
  EXPECT_EQ(statistics().reserved_bytes.all.current, static_cast<std::int64_t>(2 * kMiB));
  EXPECT_EQ(statistics().segment.large.current, 0);
  pool.free(held);
  pool.release(pool.detach_unused());
  EXPECT_EQ(statistics().reserved_bytes.all.current, 0);
}

TEST_F(BlockPoolTest, ADetachedSegmentIsNotHandedOutUntilItIsRestored) {
  void* block = allocate(4 * kMiB);
  pool.free(block);
  const auto unused = pool.detach_unused();
  EXPECT_NE(allocate(4 * kMiB), block);
  pool.restore(unused);
  EXPECT_EQ(allocate(4 * kMiB), block);
}

TEST_F(BlockPoolTest, AFailedAllocationChangesNothing) {
  void* block = allocate(60 * kMiB);
  EXPECT_EQ(allocate(8 * kMiB), nullptr);
  EXPECT_EQ(allocate(std::numeric_limits<std::size_t>::max()), nullptr);
  EXPECT_EQ(allocate(std::numeric_limits<std::size_t>::max() - kMiB), nullptr);
  EXPECT_EQ(statistics().allocation.all.current, 1);
  EXPECT_EQ(statistics().allocation.all.allocated, 1);
  EXPECT_EQ(statistics().allocated_bytes.all.current, static_cast<std::int64_t>(60 * kMiB));
  EXPECT_EQ(statistics().reserved_bytes.all.current, static_cast<std::int64_t>(60 * kMiB));
  EXPECT_EQ(statistics().device_maps, 1);
  pool.free(block);
  pool.release(pool.detach_unused());
  EXPECT_NE(allocate(8 * kMiB), nullptr);
}

TEST_F(BlockPoolTest, StatisticsCountBlocksAndBytesByClass) {
  void* small = allocate(100);
  void* large = allocate(3 * kMiB);
  EXPECT_EQ(statistics().allocation.all.current, 2);
  EXPECT_EQ(statistics().allocation.small.current, 1);
  EXPECT_EQ(statistics().allocation.large.current, 1);
  EXPECT_EQ(statistics().requested_bytes.small.current, 100);
  EXPECT_EQ(statistics().allocated_bytes.small.current, 512);
  EXPECT_EQ(statistics().allocated_bytes.large.current, static_cast<std::int64_t>(3 * kMiB));
  EXPECT_EQ(statistics().inactive_split_bytes.small.current,
            static_cast<std::int64_t>(2 * kMiB - 512));
  pool.free(small);
  EXPECT_EQ(statistics().inactive_split.small.current, 0);
  EXPECT_EQ(statistics().inactive_split.large.current, 1);
  EXPECT_EQ(statistics().requested_bytes.all.current, static_cast<std::int64_t>(3 * kMiB));
  pool.free(large);
  EXPECT_EQ(statistics().active_bytes.all.current, 0);
  EXPECT_EQ(statistics().allocated_bytes.all.freed, static_cast<std::int64_t>(3 * kMiB + 512));
  EXPECT_EQ(statistics().reserved_bytes.all.current, static_cast<std::int64_t>(6 * kMiB));
}

TEST_F(BlockPoolTest, PeaksAndSumsAreResetApart) {
  void* first = allocate(512);
  pool.free(allocate(512));
  EXPECT_EQ(statistics().allocated_bytes.all.peak, 1024);
  pool.statistics().reset_peak();
  EXPECT_EQ(statistics().allocated_bytes.all.peak, 512);
  EXPECT_EQ(statistics().allocated_bytes.all.allocated, 1024);
  pool.statistics().reset_accumulated();
  EXPECT_EQ(statistics().allocated_bytes.all.allocated, 0);
  EXPECT_EQ(statistics().allocated_bytes.all.freed, 0);
  EXPECT_EQ(statistics().allocated_bytes.all.current, 512);
  pool.free(first);
}

TEST_F(BlockPoolTest, AnAddressThatStartsNoBlockIsRefused) {
  auto* block = static_cast<std::byte*>(allocate(1024));
  EXPECT_THROW(pool.free(block + 512), Error);
  EXPECT_THROW(pool.record_stream(block + 512, stream(1)), Error);
  pool.free(block);
  EXPECT_THROW(pool.free(block), Error);
}

}  // namespace
}  // namespace openreg::backend
