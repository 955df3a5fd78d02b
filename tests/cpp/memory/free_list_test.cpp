#include "memory/free_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "seed.h"

namespace openreg::memory {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class FreeListTest : public ::testing::Test {
 protected:
  // To a list, blocks are only numbers: it never accesses their memory.
  Block& block(std::size_t bytes, std::size_t address = 0, std::uint64_t segment = 0) {
    Block& made = blocks_.emplace_back();
    segments_[segment].number = segment;
    made.segment = &segments_[segment];
    made.bytes = bytes;
    made.address = reinterpret_cast<std::byte*>(address);
    return made;
  }
  Block& inserted(std::size_t bytes, std::size_t address = 0, std::uint64_t segment = 0) {
    Block& made = block(bytes, address, segment);
    list.insert(made);
    return made;
  }
  std::set<Block*> all() const {
    std::set<Block*> found;
    list.for_each([&](Block& one) { EXPECT_TRUE(found.insert(&one).second) << "seen twice"; });
    return found;
  }

  FreeList list;

 private:
  std::deque<Block> blocks_;
  std::map<std::uint64_t, Segment> segments_;
};

TEST_F(FreeListTest, AnEmptyListHasNothing) {
  EXPECT_EQ(list.best_fit(kBlockBytes), nullptr);
  EXPECT_EQ(list.best_fit(kSegmentBytes), nullptr);
  EXPECT_EQ(list.best_fit(100 * kMiB), nullptr);
  EXPECT_TRUE(all().empty());
}

TEST_F(FreeListTest, TheSmallestBlockThatIsLargeEnoughFits) {
  Block& small = inserted(2 * kBlockBytes);
  Block& middle = inserted(200 * kBlockBytes);
  Block& large = inserted(kSegmentBytes);
  Block& larger = inserted(kSegmentBytes + kBlockBytes);
  Block& largest = inserted(64 * kMiB);
  EXPECT_EQ(list.best_fit(kBlockBytes), &small);
  EXPECT_EQ(list.best_fit(2 * kBlockBytes), &small);
  EXPECT_EQ(list.best_fit(3 * kBlockBytes), &middle);
  EXPECT_EQ(list.best_fit(201 * kBlockBytes), &large);
  EXPECT_EQ(list.best_fit(kSegmentBytes), &large);
  EXPECT_EQ(list.best_fit(kSegmentBytes + kBlockBytes), &larger);
  EXPECT_EQ(list.best_fit(kSegmentBytes + 2 * kBlockBytes), &largest);
  EXPECT_EQ(list.best_fit(64 * kMiB + kBlockBytes), nullptr);
}

TEST_F(FreeListTest, ABlockOfEachBinIsFoundFromAllSmallerSizes) {
  constexpr std::size_t kBins = kSegmentBytes / kBlockBytes;
  for (std::size_t bin = 1; bin <= kBins; ++bin) {
    Block& only = inserted(bin * kBlockBytes);
    for (const std::size_t wanted : {std::size_t{1}, bin / 2 + 1, bin}) {
      EXPECT_EQ(list.best_fit(wanted * kBlockBytes), &only) << bin << " " << wanted;
    }
    EXPECT_EQ(list.best_fit((bin + 1) * kBlockBytes), nullptr) << bin;
    list.remove(only);
    EXPECT_EQ(list.best_fit(kBlockBytes), nullptr) << bin;
  }
}

TEST_F(FreeListTest, ABinGivesTheBlockThatWasFreedLast) {
  Block& first = inserted(kBlockBytes, 512);
  Block& second = inserted(kBlockBytes, 1024);
  Block& third = inserted(kBlockBytes, 0);
  EXPECT_EQ(list.best_fit(kBlockBytes), &third);
  list.remove(second);  // from the middle
  list.remove(third);
  EXPECT_EQ(list.best_fit(kBlockBytes), &first);
  list.insert(second);
  EXPECT_EQ(list.best_fit(kBlockBytes), &second);
}

TEST_F(FreeListTest, TheTreeGivesTheLowestAddress) {
  Block& high = inserted(4 * kMiB, 64 * kMiB);
  Block& low = inserted(4 * kMiB, 8 * kMiB);
  Block& middle = inserted(4 * kMiB, 32 * kMiB);
  EXPECT_EQ(list.best_fit(3 * kMiB), &low);
  list.remove(low);
  EXPECT_EQ(list.best_fit(3 * kMiB), &middle);
  list.remove(middle);
  EXPECT_EQ(list.best_fit(3 * kMiB), &high);
}

TEST_F(FreeListTest, TheTreeGivesABlockOfTheOldestSegment) {
  inserted(4 * kMiB, 8 * kMiB, 2);
  Block& second = inserted(4 * kMiB, 64 * kMiB, 1);
  Block& first = inserted(4 * kMiB, 32 * kMiB, 1);
  EXPECT_EQ(list.best_fit(4 * kMiB), &first);
  list.remove(first);
  EXPECT_EQ(list.best_fit(4 * kMiB), &second);
}

TEST_F(FreeListTest, AListThatKeepsOrderGoesFromBlockToBlockBySizeSegmentAndAddress) {
  list.keep_order();
  std::vector<Block*> blocks{&block(kBlockBytes, 512, 1),      &block(kBlockBytes, 1024, 1),
                             &block(kBlockBytes, 0, 2),        &block(4 * kBlockBytes, 0, 1),
                             &block(kSegmentBytes, 0, 3),      &block(kSegmentBytes, 0, 4),
                             &block(3 * kMiB, 64 * kMiB, 1),   &block(3 * kMiB, 32 * kMiB, 2),
                             &block(100 * kMiB, 128 * kMiB, 1)};
  auto shuffled = blocks;
  std::ranges::shuffle(shuffled, std::mt19937{1});
  for (Block* one : shuffled) list.insert(*one);
  std::vector<Block*> found;
  for (Block* one = list.best_fit(kBlockBytes); one != nullptr; one = list.after(*one))
    found.push_back(one);
  EXPECT_EQ(found, blocks);
  EXPECT_EQ(list.largest(), blocks[8]);
  EXPECT_EQ(list.before(*blocks[8]), blocks[7]);
  EXPECT_EQ(list.before(*blocks[6]), nullptr);
  for (Block* one : shuffled) list.remove(*one);
  EXPECT_TRUE(all().empty());
}

TEST_F(FreeListTest, TheBestFitStaysInTheList) {
  Block& binned = inserted(kBlockBytes);
  EXPECT_EQ(list.best_fit(kBlockBytes), &binned);
  EXPECT_EQ(list.best_fit(kBlockBytes), &binned);
  EXPECT_EQ(all(), std::set<Block*>{&binned});
}

// Sizes near each other and sizes far apart, so that bins with many blocks, with one and with none
// all occur, in the same and in other words of the map of bins.
TEST_F(FreeListTest, ItAnswersAsAPlainListDoesOverThousandsOfChanges) {
  const unsigned seed = testing::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t from, std::size_t to) {
    return std::uniform_int_distribution<std::size_t>(from, to)(random);
  };
  const auto size = [&] {
    switch (pick(0, 3)) {
      case 0:
        return pick(1, 8) * kBlockBytes;
      case 1:
        return pick(1, 4096) * kBlockBytes;
      case 2:
        return pick(4090, 4102) * kBlockBytes;
      default:
        return pick(4097, 100'000) * kBlockBytes;
    }
  };
  std::multiset<std::size_t> sizes;
  std::vector<Block*> inside;
  for (int i = 0; i < 20'000; ++i) {
    if (inside.empty() || pick(0, 99) < (i / 2'000 % 2 == 0 ? 60U : 40U)) {
      Block& made = inserted(size(), pick(1, 1'000'000) * kBlockBytes);
      sizes.insert(made.bytes);
      inside.push_back(&made);
    } else {
      std::swap(inside[pick(0, inside.size() - 1)], inside.back());
      list.remove(*inside.back());
      sizes.erase(sizes.find(inside.back()->bytes));
      inside.pop_back();
    }
    const std::size_t wanted = size();
    const auto expected = sizes.lower_bound(wanted);
    const Block* found = list.best_fit(wanted);
    ASSERT_EQ(found != nullptr, expected != sizes.end()) << wanted;
    if (found != nullptr) {
      ASSERT_EQ(found->bytes, *expected) << wanted;
    }
    if (i % 1'000 == 0) {
      ASSERT_EQ(all(), std::set<Block*>(inside.begin(), inside.end()));
    }
  }
}

}  // namespace
}  // namespace openreg::memory
