#include "memory/value_tracker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "base/settings.h"
#include "runtime/capture.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

std::atomic<int> g_runs{0};
const Kernel& counting_kernel() {
  static const Kernel kernel("aten::test", [](const Kernel&, auto) { ++g_runs; });
  return kernel;
}
const Kernel& owning_kernel() {
  static const Kernel kernel("aten::owning", [](const Kernel&, auto) { ++g_runs; }, {.once = true});
  return kernel;
}

constexpr std::size_t kLarge = std::size_t{4} << 20;
constexpr std::int16_t kResult = -2;

/// Three blocks of a device's memory.
class ValueTrackerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (computes()) choose_computing(false);
    ValueTracker::start_if_enabled();
    memory_ = static_cast<std::byte*>(AddressSpace::get().map(0, 3 * kLarge));
  }
  void SetUp() override {
    g_runs = 0;
    for (int i = 0; i < 3; ++i) tracker().freed(block(i), nullptr);
  }

  static ValueTracker& tracker() { return *ValueTracker::get(); }
  static std::byte* block(int i) { return memory_ + static_cast<std::size_t>(i) * kLarge; }
  static std::byte* contents(int i) {
    return static_cast<std::byte*>(AddressSpace::get().aperture(block(i)));
  }
  static MemoryUse reads(int i, std::size_t bytes = 64, const char* dtype = "int64") {
    return {.storage = block(i),
            .storage_bytes = bytes,
            .footprint = {block(i), bytes},
            .argument = 0,
            .dtype = dtype};
  }
  static MemoryUse writes(int i, std::size_t bytes = 64, const char* dtype = "int64") {
    auto use = reads(i, bytes, dtype);
    use.writes = true;
    use.argument = kResult;
    return use;
  }
  static Values values(int i) { return tracker().values_of(block(i)); }
  static void know(int i) { tracker().written(block(i), true, Values::kKnown); }

  void run(const std::vector<MemoryUse>& memory, const Kernel& kernel = counting_kernel()) {
    const std::string arguments = "arguments";
    Launch launch{.stream = *stream,
                  .name = kernel.name(),
                  .memory = memory,
                  .kernel = &kernel,
                  .arguments = std::as_bytes(std::span(arguments))};
    checks::enqueue_checked(launch,
                            [&] { launch.stream.enqueue(*launch.kernel, launch.arguments, {}); });
    stream->synchronize();
  }

  static inline std::byte* memory_ = nullptr;
  OwnStream stream;
};

TEST_F(ValueTrackerTest, RunsSmallCommandsOfKnownValues) {
  run({writes(0)});
  EXPECT_EQ(values(0), Values::kKnown);
  run({reads(0), writes(1, 64, "float32")});
  EXPECT_EQ(values(1), Values::kKnown);
  EXPECT_EQ(g_runs, 2);
}

TEST_F(ValueTrackerTest, DoesNotRunLargeCommands) {
  know(0);
  run({reads(0, kLarge), writes(1, kLarge)});
  EXPECT_EQ(values(1), Values::kNone);
  run({reads(0), writes(1, 8192, "float32")});
  EXPECT_EQ(values(1), Values::kNone);
  run({reads(0), writes(1, 8192, "int32")});
  EXPECT_EQ(values(1), Values::kKnown);
  EXPECT_EQ(g_runs, 1);
}

TEST_F(ValueTrackerTest, SmallResultsOfOtherCommandsAreZeros) {
  std::memset(contents(1), 7, 128);
  run({reads(0, kLarge, "float32"), writes(1, 64, "float32")});
  EXPECT_EQ(values(1), Values::kZeros);
  EXPECT_EQ(contents(1)[63], std::byte{0});
  EXPECT_EQ(contents(1)[64], std::byte{7});
  EXPECT_EQ(g_runs, 0);
}

TEST_F(ValueTrackerTest, IntegersAreComputedOfZerosAndOtherNumbersAreNot) {
  run({reads(0, kLarge), writes(1)});
  run({reads(1), writes(2)});
  EXPECT_EQ(values(2), Values::kZeros);
  EXPECT_EQ(g_runs, 1);
  run({reads(1), writes(2, 64, "float32")});
  EXPECT_EQ(values(2), Values::kZeros);
  EXPECT_EQ(g_runs, 1);
}

TEST_F(ValueTrackerTest, APartThatIsWrittenIsKnownOnlyIfTheRestIs) {
  auto part = writes(0);
  part.storage_bytes = 128;
  run({part});
  EXPECT_EQ(values(0), Values::kNone);
  know(0);
  run({part});
  EXPECT_EQ(values(0), Values::kKnown);
}

TEST_F(ValueTrackerTest, WhatOwnsSomethingRuns) {
  run({reads(0, kLarge), writes(1, kLarge)}, owning_kernel());
  EXPECT_EQ(g_runs, 1);
  EXPECT_EQ(values(1), Values::kNone);
}

TEST_F(ValueTrackerTest, SaysWhichCommandsDoNothing) {
  const auto does_nothing = [&](const std::vector<MemoryUse>& memory) {
    Launch launch{
        .stream = *stream, .name = "aten::test", .memory = memory, .kernel = &counting_kernel()};
    tracker().before_enqueue(launch);
    return launch.idle != nullptr && launch.idle == launch.kernel && !launch.idle_writes;
  };
  EXPECT_TRUE(does_nothing({reads(0, kLarge), writes(1, kLarge)}));
  EXPECT_FALSE(does_nothing({reads(0, kLarge), writes(1)}));  // it fills the result
  EXPECT_FALSE(does_nothing({writes(0)}));
  auto pinned = reads(0, kLarge);
  pinned.pinned = true;
  EXPECT_FALSE(does_nothing({pinned, writes(1, kLarge)}));
}

TEST_F(ValueTrackerTest, ForgetsWhatIsFreed) {
  know(0);
  tracker().freed(block(0), nullptr);
  EXPECT_EQ(values(0), Values::kNone);
}

TEST_F(ValueTrackerTest, WhatIsNotEnqueuedIsNotKnown) {
  know(0);
  const auto memory = writes(0);
  Launch launch{.stream = *stream,
                .name = "aten::test",
                .memory = {&memory, 1},
                .kernel = &counting_kernel()};
  EXPECT_THROW(checks::enqueue_checked(launch, [] { throw std::runtime_error("full"); }),
               std::runtime_error);
  EXPECT_EQ(values(0), Values::kNone);
}

TEST_F(ValueTrackerTest, TopkOfABalancedRouterChoosesEachIndexEquallyOften) {
  static const Kernel topk("aten::topk", [](const Kernel&, auto) { ++g_runs; });
  const std::int64_t of_scores[] = {4, 8}, of_chosen[] = {4, 2};
  auto scores = reads(0, kLarge, "float32");
  scores.sizes = of_scores;
  auto chosen = writes(1);
  chosen.sizes = of_chosen;
  tracker().assume({.nonzero = {}, .balanced_routing = true});
  run({scores, chosen}, topk);
  tracker().assume({});
  std::vector<std::int64_t> indices(8);
  std::memcpy(indices.data(), contents(1), 64);
  EXPECT_EQ(indices, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values(1), Values::kAssumed);
}

TEST_F(ValueTrackerTest, GraphsDecideInEachRun) {
  know(0);
  const auto memory = std::vector{reads(0), writes(1)};
  Launch launch{.stream = *stream,
                .name = "aten::test",
                .memory = memory,
                .kernel = &counting_kernel(),
                .capture = 7};
  tracker().before_enqueue(launch);
  EXPECT_EQ(values(1), Values::kKnown);
  tracker().written(block(0), true, Values::kNone);
  Launch replay{.stream = *stream, .name = "graph", .graph = 7};
  tracker().before_replay(replay);
  EXPECT_EQ(values(1), Values::kZeros);
  know(0);
  tracker().before_replay(replay);
  EXPECT_EQ(values(1), Values::kKnown);
  tracker().graph_destroyed(7);
}

TEST_F(ValueTrackerTest, CountsTheHostsReadsOfUnknownValues) {
  const auto before = tracker().report().reads.size();
  know(0);
  tracker().host_access("known", reads(0));
  tracker().host_access("unknown", reads(1));
  const auto reads_now = tracker().report().reads;
  ASSERT_EQ(reads_now.size(), before + 1);
  EXPECT_EQ(reads_now.back().op, "unknown");
  EXPECT_EQ(reads_now.back().count, 1);
}

}  // namespace
}  // namespace openreg::memory
