#include "address_space/memory_budget.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

namespace openreg {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

// A machine whose numbers the test sets. What is granted is mapped, and stays untouched.
struct Fake {
  std::optional<std::size_t> left = kGiB;
  std::size_t mapped = 0;
  std::size_t touched = 0;
  int asked = 0;
  int counted = 0;
  MemoryBudget::Clock::time_point now{};
  MemoryBudget budget{{.left = [this] { return ++asked, left; },
                       .mapped = [this] { return mapped; },
                       .untouched = [this] { return ++counted, mapped - touched; },
                       .reserve = 100 * kMiB}};

  bool map(std::size_t bytes) {
    const bool granted = budget.grants(bytes, now);
    if (granted) mapped += bytes;
    return granted;
  }
  void touch(std::size_t bytes) {
    touched += bytes;
    *left -= bytes;
  }
};

TEST(MemoryBudget, GrantsWhatTheMachineHasLeftButAReserve) {
  Fake fake;
  EXPECT_FALSE(fake.map(kGiB - 100 * kMiB + 1));
  EXPECT_EQ(fake.budget.left(), kGiB - 100 * kMiB);
  EXPECT_TRUE(fake.map(kGiB - 100 * kMiB));
}

TEST(MemoryBudget, CountsWhatIsMappedAndNotTouched) {
  Fake fake;
  EXPECT_TRUE(fake.map(500 * kMiB));
  EXPECT_FALSE(fake.map(500 * kMiB));
  EXPECT_EQ(fake.budget.left(), 424 * kMiB);
}

TEST(MemoryBudget, CountsWhatIsTouchedOnce) {
  Fake fake;
  EXPECT_TRUE(fake.map(500 * kMiB));
  fake.touch(500 * kMiB);  // the machine itself has less left now
  EXPECT_EQ(fake.budget.left(), 424 * kMiB);
  EXPECT_TRUE(fake.map(424 * kMiB));
  EXPECT_FALSE(fake.map(2 * kMiB));
}

TEST(MemoryBudget, GrantsNeverAddUpToMoreThanThereIs) {
  for (const std::size_t step : {2 * kMiB, 6 * kMiB, 94 * kMiB}) {
    Fake fake;
    while (fake.map(step)) {
    }
    EXPECT_LE(fake.mapped, kGiB - 100 * kMiB);
    EXPECT_GT(fake.mapped + step, kGiB - 100 * kMiB);
  }
}

TEST(MemoryBudget, AsksTheMachineOnceForManySmallRequests) {
  Fake fake;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(fake.map(2 * kMiB));
  EXPECT_EQ(fake.asked, 1);
  EXPECT_EQ(fake.counted, 0);  // all of it would fit
}

TEST(MemoryBudget, AsksAgainWhenAnAnswerIsOld) {
  Fake fake;
  EXPECT_TRUE(fake.map(2 * kMiB));
  fake.left = 101 * kMiB;  // another process has taken the rest
  fake.now += MemoryBudget::kValid;
  EXPECT_FALSE(fake.map(2 * kMiB));
}

TEST(MemoryBudget, GrantsAllIfTheSystemDoesNotSayWhatIsLeft) {
  Fake fake;
  fake.left = std::nullopt;
  EXPECT_TRUE(fake.map(1000 * kGiB));
  EXPECT_EQ(fake.budget.left(), std::numeric_limits<std::size_t>::max());
}

}  // namespace
}  // namespace openreg
