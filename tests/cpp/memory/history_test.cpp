#include "memory/history.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace openreg::memory {
namespace {

class HistoryTest : public testing::Test {
 protected:
  static HistoryOptions enabled(std::size_t max_entries) {
    return {.enabled = true, .max_entries = max_entries};
  }
  void record(std::size_t number, Action action = Action::kAlloc, const Context& context = {}) {
    history.record(action, nullptr, number, nullptr, PoolId{}, context);
  }
  void record_from_to(std::size_t from, std::size_t to) {
    for (std::size_t number = from; number <= to; ++number) record(number);
  }
  std::vector<std::size_t> numbers() const {
    std::vector<std::size_t> result;
    for (const auto& entry : history.entries()) result.push_back(entry.bytes);
    return result;
  }
  using Numbers = std::vector<std::size_t>;

  History history;
};

TEST_F(HistoryTest, NothingIsRecordedUnlessItIsAskedFor) {
  EXPECT_FALSE(history.enabled());
  record(1);
  EXPECT_TRUE(history.entries().empty());
}

TEST_F(HistoryTest, AnEntryHasAllThatWasGiven) {
  history.configure({.enabled = true, .allocations = true, .max_entries = 10});
  set_thread_metadata("step 1");
  const Context context = std::make_shared<int>(7);
  const auto before = std::chrono::system_clock::now();
  int here = 0;
  const auto& stream = reinterpret_cast<const Stream&>(here);
  history.record(Action::kSegmentMap, &here, 512, &stream, {3, 4}, context);
  const auto after = std::chrono::system_clock::now();
  set_thread_metadata("");

  ASSERT_EQ(history.entries().size(), 1U);
  const auto entry = history.entries().front();
  EXPECT_EQ(entry.action, Action::kSegmentMap);
  EXPECT_EQ(entry.address, reinterpret_cast<std::uintptr_t>(&here));
  EXPECT_EQ(entry.bytes, 512U);
  EXPECT_EQ(entry.stream, &stream);
  EXPECT_EQ(entry.pool, (PoolId{3, 4}));
  EXPECT_EQ(entry.context, context);
  EXPECT_EQ(entry.metadata, "step 1");
  using std::chrono::duration_cast, std::chrono::microseconds;
  EXPECT_GE(entry.time_us, duration_cast<microseconds>(before.time_since_epoch()).count());
  EXPECT_LE(entry.time_us, duration_cast<microseconds>(after.time_since_epoch()).count());
}

TEST_F(HistoryTest, MetadataIsOfTheThreadThatRecords) {
  history.configure(enabled(10));
  set_thread_metadata("of this thread");
  std::thread([this] {
    EXPECT_EQ(thread_metadata(), "");
    set_thread_metadata("of another thread");
    record(1);
  }).join();
  record(2);
  set_thread_metadata("");
  ASSERT_EQ(history.entries().size(), 2U);
  EXPECT_EQ(history.entries()[0].metadata, "of another thread");
  EXPECT_EQ(history.entries()[1].metadata, "of this thread");
}

// Destructors of thread-local objects free memory, in an order that nothing fixes.
TEST_F(HistoryTest, MemoryIsFreedAfterTheMetadataOfItsThreadIsGone) {
  history.configure(enabled(10));
  struct AtEnd {
    std::function<void()> call;
    ~AtEnd() { call(); }
  };
  std::thread([this] {
    static thread_local AtEnd at_end;  // made first, so destroyed last
    at_end.call = [this] { record(1); };
    set_thread_metadata("a text that is too long to be stored in the string itself");
  }).join();
  ASSERT_EQ(history.entries().size(), 1U);
  EXPECT_EQ(history.entries()[0].metadata, "");
}

TEST_F(HistoryTest, TheRingKeepsTheNewestInTheirOrder) {
  history.configure(enabled(4));
  record_from_to(1, 3);
  EXPECT_EQ(numbers(), (Numbers{1, 2, 3}));
  record(4);
  EXPECT_EQ(numbers(), (Numbers{1, 2, 3, 4}));
  record(5);
  EXPECT_EQ(numbers(), (Numbers{2, 3, 4, 5}));
  record_from_to(6, 103);
  EXPECT_EQ(numbers(), (Numbers{100, 101, 102, 103}));
}

TEST_F(HistoryTest, AShorterRingKeepsTheNewest) {
  history.configure(enabled(5));
  record_from_to(1, 7);
  history.configure(enabled(3));
  EXPECT_EQ(numbers(), (Numbers{5, 6, 7}));
  record(8);
  EXPECT_EQ(numbers(), (Numbers{6, 7, 8}));
}

TEST_F(HistoryTest, ALongerRingGoesOnBehindWhatThereIs) {
  history.configure(enabled(3));
  record_from_to(1, 5);
  history.configure(enabled(5));
  EXPECT_EQ(numbers(), (Numbers{3, 4, 5}));
  record_from_to(6, 8);
  EXPECT_EQ(numbers(), (Numbers{4, 5, 6, 7, 8}));
}

TEST_F(HistoryTest, ARingWithoutEntriesRecordsNothing) {
  history.configure(enabled(3));
  record_from_to(1, 3);
  history.configure(enabled(0));
  record(4);
  EXPECT_TRUE(history.entries().empty());
}

TEST_F(HistoryTest, WhatWasRecordedIsThereAfterItHasBeenTurnedOff) {
  history.configure(enabled(3));
  record_from_to(1, 4);
  history.configure({});
  record(5);
  EXPECT_EQ(numbers(), (Numbers{2, 3, 4}));
  history.configure(enabled(3));
  record(6);
  EXPECT_EQ(numbers(), (Numbers{3, 4, 6}));
}

TEST_F(HistoryTest, AClearedHistoryBeginsAgain) {
  history.configure(enabled(3));
  record_from_to(1, 5);
  history.clear();
  EXPECT_TRUE(history.entries().empty());
  record_from_to(6, 9);
  EXPECT_EQ(numbers(), (Numbers{7, 8, 9}));
}

TEST_F(HistoryTest, EachActionCanBeSkippedByItself) {
  for (std::size_t skipped = 0; skipped < kActionNames.size(); ++skipped) {
    auto options = enabled(kActionNames.size());
    options.skipped = std::uint32_t{1} << skipped;
    history.clear();
    history.configure(options);
    for (std::size_t action = 0; action < kActionNames.size(); ++action) {
      record(action, static_cast<Action>(action));
    }
    Numbers expected;
    for (std::size_t action = 0; action < kActionNames.size(); ++action) {
      if (action != skipped) expected.push_back(action);
    }
    EXPECT_EQ(numbers(), expected);
  }
}

TEST_F(HistoryTest, ContextsAreKeptForTheKindsOfActionsThatWereAskedFor) {
  const Context context = std::make_shared<int>(7);
  const auto is_free = [](Action action) {
    return action == Action::kFreeRequested || action == Action::kFreeCompleted;
  };
  for (const bool allocations : {false, true}) {
    for (const bool frees : {false, true}) {
      history.clear();
      history.configure({.enabled = true,
                         .allocations = allocations,
                         .frees = frees,
                         .max_entries = kActionNames.size()});
      for (std::size_t i = 0; i < kActionNames.size(); ++i)
        record(i, static_cast<Action>(i), context);
      for (const auto& entry : history.entries()) {
        const bool kept = is_free(entry.action) ? frees : allocations;
        EXPECT_EQ(entry.context, kept ? context : nullptr) << entry.bytes;
      }
    }
  }
  history.clear();
  EXPECT_EQ(context.use_count(), 1);
}

TEST_F(HistoryTest, AnEntryThatIsOverwrittenReleasesItsContext) {
  history.configure({.enabled = true, .allocations = true, .max_entries = 1});
  const Context context = std::make_shared<int>(7);
  record(1, Action::kAlloc, context);
  EXPECT_EQ(context.use_count(), 2);
  record(2);
  EXPECT_EQ(context.use_count(), 1);
}

}  // namespace
}  // namespace openreg::memory
