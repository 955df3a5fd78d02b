#include "memory/pinned/pending_copies.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

namespace openreg::memory {
namespace {

constexpr std::size_t kPage = 4096;

// Of blocks that do not exist: PendingCopies does not touch them.
PinnedWindows::Block block(std::size_t i) {
  const auto begin = std::uintptr_t{1} << 40 | i * 2 * kPage;
  return {.begin = begin, .end = begin + 2 * kPage};
}
std::shared_ptr<PendingCopy> copy(std::size_t i) {
  const Footprint footprint(reinterpret_cast<void*>(block(i).begin), 4);
  return std::make_shared<PendingCopy>(block(i), footprint, /*written=*/true,
                                       SubmissionId{.stream = 1, .number = i + 1}, "");
}

TEST(PendingCopiesTest, OfVeryManyCopiesTheNewestAreKept) {
  constexpr std::size_t kCopies = 20'000;
  auto copies = std::make_unique<PendingCopies>();
  std::size_t gone = 0;
  for (std::size_t i = 0; i < kCopies; ++i) {
    for (const auto& each : copies->add(copy(i))) EXPECT_EQ(each->block.begin, block(gone++).begin);
    const auto list = copies->of_block(block(i));
    EXPECT_LE(list->size(), PendingCopies::kMostOfOneBlock);
    EXPECT_EQ(list->back()->block.begin, block(i).begin);
  }
  EXPECT_EQ(copies->size(), PendingCopies::kMostRuns);
  EXPECT_EQ(gone, kCopies - PendingCopies::kMostRuns);
  VectorClock seen;
  seen.set_last({.stream = 1, .number = kCopies - 1});
  EXPECT_EQ(copies->take_seen(seen).size(), PendingCopies::kMostRuns - 1);
  EXPECT_EQ(copies->take({.stream = 1, .number = kCopies}).size(), 1);
  EXPECT_TRUE(copies->empty());
  EXPECT_TRUE(copies->of_block(block(kCopies - 1))->empty());
}

// As signal handlers do on any thread.
TEST(PendingCopiesTest, ThreadsReadTheCopiesOfABlockWhileTheseComeAndGo) {
  auto copies = std::make_unique<PendingCopies>();
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    while (!ends) {
      const auto list = copies->of_block(block(0));
      for (const auto& each : *list) EXPECT_TRUE(each->conflicts(each->block.begin, false));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    copies->add(copy(0));
    EXPECT_EQ(copies->take_block(block(0)).size(), 1);
  }
  ends = true;
  reader.join();
}

}  // namespace
}  // namespace openreg::memory
