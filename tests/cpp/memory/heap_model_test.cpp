// Heap: tens of thousands of random operations, each checked against a plain model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "heap_checks.h"
#include "memory/heap.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using namespace testing;

// --- The model ---

// The counters, according to the rule that each operation changes each of them in one direction.
class ModelStatistics {
 public:
  // The heap is at `now`. An operation of several steps may pass through states that are not
  // visible: then counters that change in both directions (inactive blocks, segments) are copied
  // from the heap.
  void advance(const Currents& now, bool several_steps, const Statistics& actual) {
    for (std::size_t i = 0; i < kVisible.size(); ++i) {
      const bool both_ways = i == 5 || i == 6 || i == 7;
      const auto& counter = actual.*kVisible[i].second;
      std::int64_t sum = 0;
      for (const auto size_class : kBothClasses) {
        const auto c = static_cast<std::size_t>(size_class);
        step(counters_[i][c], now[i][c]);
        sum += now[i][c];
      }
      auto& all = counters_[i][kSizeClasses];
      all.current = sum;
      all.peak = std::max(all.peak, sum);
      if (both_ways && several_steps) {
        for (const auto size_class : kBothClasses) {
          take_over(counters_[i][static_cast<std::size_t>(size_class)], counter.of(size_class));
        }
        take_over(all, counter.all());
      }
      all.allocated = counters_[i][0].allocated + counters_[i][1].allocated;
      all.freed = counters_[i][0].freed + counters_[i][1].freed;
    }
  }
  void reset_peak() {
    for_each([](Stat& c) { c.peak = c.current; });
  }
  void reset_accumulated() {
    for_each([](Stat& c) { c.allocated = c.freed = 0; });
  }
  void expect_equal(const Statistics& actual) const {
    for (std::size_t i = 0; i < kVisible.size(); ++i) {
      const auto& counter = actual.*kVisible[i].second;
      EXPECT_EQ(counter.of(SizeClass::kSmall), counters_[i][0]) << kVisible[i].first;
      EXPECT_EQ(counter.of(SizeClass::kLarge), counters_[i][1]) << kVisible[i].first;
      EXPECT_EQ(counter.all(), counters_[i][kSizeClasses]) << kVisible[i].first;
    }
  }

 private:
  static void step(Stat& counter, std::int64_t now) {
    const std::int64_t change = now - counter.current;
    (change > 0 ? counter.allocated : counter.freed) += change > 0 ? change : -change;
    counter.current = now;
    counter.peak = std::max(counter.peak, now);
  }
  static void take_over(Stat& counter, const Stat& actual) {
    EXPECT_GE(actual.peak, counter.peak);
    EXPECT_GE(actual.allocated, counter.allocated);
    counter.peak = actual.peak;
    counter.allocated = actual.allocated;
    counter.freed = actual.freed;
  }
  template <class F>
  void for_each(F f) {
    for (auto& kind : counters_) {
      for (auto& counter : kind) f(counter);
    }
  }

  // By counter, and small, large, all.
  std::array<std::array<Stat, kSizeClasses + 1>, kVisible.size()> counters_{};
};

// A block that a segment lists, with its stream and class.
struct Shown {
  std::size_t bytes;
  std::size_t requested;
  Block::State state;
  const Stream* stream;
  PoolId pool;
  SizeClass size_class;
  std::uintptr_t segment;
};
using View = std::map<std::uintptr_t, Shown>;

View view_of(const Heap& heap) {
  View result;
  for (const auto& segment : heap.segments()) {
    for (const auto& block : segment.blocks) {
      result.emplace(block.address, Shown{block.bytes, block.requested, block.state, segment.stream,
                                          segment.pool, segment.size_class, segment.address});
    }
  }
  return result;
}

// --- The test ---

struct Config {
  const char* name;
  Policy policy;
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  bool may_extend = true;
  std::size_t room_pages = 16;
};

void PrintTo(const Config& config, std::ostream* out) { *out << config.name; }

class HeapModelTest : public ::testing::TestWithParam<Config> {
 protected:
  static constexpr int kStreams = 3;
  static constexpr std::array<PoolId, 2> kPools{PoolId{1, 0}, PoolId{2, 0}};

  struct Held {
    std::size_t requested;
    Stream* stream;
    std::set<Stream*> users;
  };
  std::size_t pick(std::size_t from, std::size_t to) {
    return std::uniform_int_distribution<std::size_t>(from, to)(random);
  }
  Stream& any_stream() { return fake_stream(static_cast<int>(pick(0, kStreams - 1))); }
  std::size_t any_size() {
    switch (pick(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return pick(1, 4096);
      case 4:
      case 5:
      case 6:
        return pick(1, kMiB);
      case 7:
      case 8:
        return pick(kMiB, 4 * kMiB);
      default:
        return pick(4 * kMiB, 14 * kMiB);
    }
  }
  PoolId routed() const { return routes.empty() ? PoolId{} : routes.back().second; }

  // --- Operations ---

  void allocate() {
    heap.collect();
    look(true);
    auto& stream = any_stream();
    const std::size_t bytes = any_size();
    const std::size_t rounded = policy.round(bytes);
    const View before = view;
    const auto expected = best_fit(before, rounded, stream);
    const bool only_cached = pick(0, 9) == 0;
    void* const address =
        only_cached ? heap.allocate_cached(bytes, stream) : heap.allocate(bytes, stream);
    if (address == nullptr) {
      look(false);
      EXPECT_FALSE(expected.has_value()) << "a block that fits was not found";
      if (!only_cached) expect_no_room(rounded);
      return;
    }
    const auto got = reinterpret_cast<std::uintptr_t>(address);
    EXPECT_TRUE(held.try_emplace(got, Held{bytes, &stream, {}}).second) << "handed out twice";
    const View after = view_of(heap);
    const Shown& block = after.at(got);
    if (!before.contains(block.segment) && policy.is_oversize(round_up(rounded, kSegmentBytes))) {
      oversize.insert(block.segment);
    }
    look(false);
    EXPECT_EQ(block.requested, bytes);
    EXPECT_GE(block.bytes, rounded);
    EXPECT_EQ(block.stream, &stream);
    EXPECT_EQ(block.pool, routed());
    EXPECT_EQ(block.size_class, class_of(rounded));
    if (!oversize.contains(block.segment)) {
      EXPECT_EQ(block.bytes, rounded);
    }
    if (expected) {
      const auto was = before.find(got);
      ASSERT_NE(was, before.end());
      EXPECT_EQ(was->second.state, Block::State::kFree);
      EXPECT_EQ(was->second.bytes, *expected) << "not the best fit";
    } else {
      EXPECT_FALSE(only_cached);
    }
  }

  void free_block() {
    if (held.empty()) return;
    const auto found = any_held();
    const auto [address, info] = *found;
    held.erase(found);
    const std::size_t bytes = view.at(address).bytes;
    const std::size_t events = backing.events.size();
    EXPECT_EQ(heap.free(reinterpret_cast<void*>(address)), bytes);
    EXPECT_EQ(backing.events.size(), events + info.users.size());
    if (!info.users.empty()) {
      pending[address] = info.users.size();
      for (auto i = events; i < backing.events.size(); ++i) recorded[i] = address;
    }
    look(false);
    EXPECT_EQ(view.contains(address) && view.at(address).state == Block::State::kPending,
              !info.users.empty());
  }

  void record_stream() {
    if (held.empty()) return;
    const auto found = any_held();
    auto& stream = any_stream();
    heap.record_stream(reinterpret_cast<void*>(found->first), stream);
    if (&stream != found->second.stream) found->second.users.insert(&stream);
    look(false);
  }

  // Events complete in any order, but the heap notices those of one stream in their order.
  void complete_event() {
    if (recorded.empty()) return;
    auto it = recorded.begin();
    std::advance(it, pick(0, std::min<std::size_t>(recorded.size() - 1, 3)));
    backing.complete(it->first);
    heap.collect();
    std::size_t freed = 0;
    std::set<const Stream*> blocked;
    for (auto event = recorded.begin(); event != recorded.end();) {
      const auto& given = backing.events[event->first];
      if (blocked.contains(given.stream) || !*given.completed) {
        blocked.insert(given.stream);
        ++event;
        continue;
      }
      if (--pending.at(event->second) == 0) {
        pending.erase(event->second);
        ++freed;
      }
      event = recorded.erase(event);
    }
    look(freed > 1);
  }

  void detach() {
    const View before = view;
    Heap::Pieces pieces;
    switch (pick(0, 3)) {
      case 0:
        pieces = heap.detach_unused();
        break;
      case 1:
        pieces = heap.detach_unused(kPools[pick(0, 1)]);
        break;
      case 2:
        pieces = heap.detach_oversize(any_size(), any_stream());
        break;
      default:
        pieces = heap.detach_oldest();
    }
    for (const auto* piece : pieces) {
      EXPECT_EQ(piece->bytes % kSegmentBytes, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece->address) % kSegmentBytes, 0U);
      const auto pool = piece->segment->pool->id();
      EXPECT_TRUE(pool == PoolId{} || heap.uses(pool) == 0 || piece->segment->is_oversize);
      detached.insert(reinterpret_cast<std::uintptr_t>(piece->address));
    }
    if (!pieces.empty()) on_their_way.push_back(pieces);
    look(true);
  }

  void land() {
    if (on_their_way.empty()) return;
    std::swap(on_their_way[pick(0, on_their_way.size() - 1)], on_their_way.back());
    const auto pieces = on_their_way.back();
    on_their_way.pop_back();
    for (const auto* piece : pieces) {
      detached.erase(reinterpret_cast<std::uintptr_t>(piece->address));
    }
    if (pick(0, 2) == 0) {
      heap.restore(pieces);
    } else {
      const std::size_t before = backing.mapped();
      std::size_t bytes = 0;
      for (const auto* piece : pieces) bytes += piece->bytes;
      heap.release(pieces);
      EXPECT_EQ(backing.mapped(), before - bytes);
    }
    look(true);
  }

  void change_routes() {
    if (routes.size() < 2 && pick(0, 2) == 0) {
      const auto pool = kPools[pick(0, 1)];
      routes.emplace_back(heap.add_route(pool, [](const Stream&) { return true; }), pool);
    } else if (!routes.empty()) {
      const auto index = pick(0, routes.size() - 1);
      heap.remove_route(routes[index].first);
      routes.erase(routes.begin() + static_cast<std::ptrdiff_t>(index));
    }
    look(false);
  }

  void wrong_free() {
    // An address inside a block, and blocks that are not held.
    const auto before = testing::describe(heap.statistics());
    for (const auto& [address, block] : view) {
      if (pick(0, 20) != 0) continue;
      const auto wrong = block.state == Block::State::kHeld ? address + 512 : address;
      if (held.contains(wrong)) continue;
      EXPECT_NE(testing::error_of([&] { heap.free(reinterpret_cast<void*>(wrong)); }), "nothing");
    }
    EXPECT_EQ(testing::describe(heap.statistics()), before);
  }

  void reset() {
    if (pick(0, 1) == 0) {
      heap.statistics().reset_peak();
      model.reset_peak();
    } else {
      heap.statistics().reset_accumulated();
      model.reset_accumulated();
    }
    look(false);
  }

  // --- Checks ---

  // Compares the heap with the model. `several_steps`: see ModelStatistics::advance().
  void look(bool several_steps) {
    view = view_of(heap);
    expect_consistent(heap, backing);
    model.advance(currents_of(heap), several_steps, heap.statistics());
    model.expect_equal(heap.statistics());
    std::size_t shown_held = 0;
    std::size_t shown_pending = 0;
    std::size_t shown_detached = 0;
    for (const auto& [address, block] : view) {
      switch (block.state) {
        case Block::State::kHeld:
          ++shown_held;
          ASSERT_TRUE(held.contains(address));
          EXPECT_EQ(block.requested, held.at(address).requested);
          break;
        case Block::State::kPending:
          ++shown_pending;
          ASSERT_TRUE(pending.contains(address));
          break;
        case Block::State::kDetached:
          ++shown_detached;
          ASSERT_TRUE(detached.contains(address));
          break;
        case Block::State::kFree:
          break;
      }
    }
    EXPECT_EQ(shown_held, held.size());
    EXPECT_EQ(shown_pending, pending.size());
    EXPECT_EQ(shown_detached, detached.size());
    std::erase_if(oversize, [&](auto address) { return !view.contains(address); });
    EXPECT_EQ(heap.statistics().oversize_segments.current(),
              static_cast<std::int64_t>(oversize.size()));
  }

  // The size of the smallest usable free block, if there is one.
  std::optional<std::size_t> best_fit(const View& blocks, std::size_t rounded,
                                      const Stream& stream) const {
    std::optional<std::size_t> best;
    for (const auto& [address, block] : blocks) {
      if (block.state != Block::State::kFree || block.stream != &stream || block.pool != routed() ||
          block.size_class != class_of(rounded) || block.bytes < rounded)
        continue;
      if (oversize.contains(block.segment) &&
          (!policy.is_oversize(round_up(rounded, kSegmentBytes)) ||
           block.bytes - rounded >= policy.max_non_split_rounding))
        continue;
      if (!best || block.bytes < *best) best = block.bytes;
    }
    return best;
  }

  void expect_no_room(std::size_t rounded) {
    const std::size_t bytes = round_up(rounded, kSegmentBytes);
    const std::size_t limit = std::min(GetParam().limit, backing.capacity());
    EXPECT_GT(bytes, limit - backing.mapped()) << "there was room";
  }

  std::map<std::uintptr_t, Held>::iterator any_held() {
    auto it = held.begin();
    std::advance(it, pick(0, held.size() - 1));
    return it;
  }

  void step() {
    const std::size_t kind = pick(0, 99);
    // Periods in which the number of blocks grows alternate with periods in which it shrinks.
    const std::size_t allocations = operations / 500 % 2 == 0 ? 50 : 25;
    ++operations;
    if (kind < allocations) {
      allocate();
    } else if (kind < 75) {
      free_block();
    } else if (kind < 85) {
      record_stream();
    } else if (kind < 91) {
      complete_event();
    } else if (kind < 93) {
      detach();
    } else if (kind < 95) {
      land();
    } else if (kind < 98) {
      change_routes();
    } else if (kind < 99) {
      wrong_free();
    } else {
      reset();
    }
  }

  Policy policy = GetParam().policy;
  FakeBacking backing{96 * kMiB};
  Heap heap{backing};
  std::mt19937 random;
  int operations = 0;
  View view;
  ModelStatistics model;
  std::map<std::uintptr_t, Held> held;
  std::map<std::uintptr_t, std::size_t> pending;   // events that have not completed
  std::map<std::size_t, std::uintptr_t> recorded;  // by the number of the event, in their order
  std::set<std::uintptr_t> detached;
  std::vector<Heap::Pieces> on_their_way;
  std::vector<std::pair<int, PoolId>> routes;
  std::set<std::uintptr_t> oversize;
};

TEST_P(HeapModelTest, RandomOperationsKeepWhatMustBeTrue) {
  const unsigned seed = testing::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  heap.set_policy(policy);
  heap.set_limit(GetParam().limit);
  backing.may_extend = GetParam().may_extend;
  backing.room_pages = GetParam().room_pages;
  for (int i = 0; i < 8'000 && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    step();
  }
  if (HasFailure()) return;

  // In the end all memory is returned.
  while (!routes.empty()) change_routes();
  while (!held.empty()) free_block();
  while (!recorded.empty()) complete_event();
  while (!on_their_way.empty()) land();
  EXPECT_EQ(heap.statistics().active.current(), 0);
  heap.release(heap.detach_unused());
  look(true);
  EXPECT_EQ(backing.mapped(), 0U);
  EXPECT_TRUE(heap.segments().empty());
  for (const auto& pool : kPools) EXPECT_THROW(heap.set_no_split(pool, true), Error);  // gone
}

Policy oversize_from(std::size_t bytes, std::size_t rounding) {
  Policy policy;
  policy.max_split_bytes = bytes;
  policy.max_non_split_rounding = rounding;
  return policy;
}

Policy collecting_above(double threshold) {
  Policy policy;
  policy.garbage_collection_threshold = threshold;
  return policy;
}

Policy rounding_to(std::size_t divisions) {
  Policy policy;
  policy.power2_divisions.fill(divisions);
  return policy;
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, HeapModelTest,
    ::testing::Values(
        Config{.name = "Plain", .policy = {}},
        Config{.name = "Collecting", .policy = collecting_above(0.5), .limit = 80 * kMiB},
        Config{.name = "Oversize", .policy = oversize_from(6 * kMiB, 2 * kMiB)},
        Config{.name = "OversizeFromTheSmallest", .policy = oversize_from(2 * kMiB, 20 * kMiB)},
        Config{.name = "RoundingToPowersOfTwo", .policy = rounding_to(4)},
        Config{.name = "NeverGrowing", .policy = {}, .may_extend = false},
        Config{.name = "WithoutRoomBetween", .policy = {}, .room_pages = 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace openreg::memory
