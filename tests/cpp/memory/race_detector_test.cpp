#include "memory/race_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "runtime/callbacks.h"
#include "runtime/capture.h"
#include "runtime/event.h"
#include "runtime/graph_exec.h"
#include "runtime/stream.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

std::byte* at(std::size_t offset) {
  return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40) + offset;
}

MemoryUse use(std::size_t offset, std::size_t bytes, bool writes) {
  return {
      .storage = at(0), .storage_bytes = 4096, .footprint = {at(offset), bytes}, .writes = writes};
}
MemoryUse reads(std::size_t offset = 0, std::size_t bytes = 64) {
  return use(offset, bytes, false);
}
MemoryUse writes(std::size_t offset = 0, std::size_t bytes = 64) {
  return use(offset, bytes, true);
}
MemoryUse some_of(MemoryUse memory) {
  memory.some_elements = true;
  return memory;
}

class RaceDetectorTest : public ::testing::Test {
 protected:
  void SetUp() override { RaceDetector::set_mode(RaceDetectionMode::kError); }
  void TearDown() override {
    synchronize_device(0);
    RaceDetector::set_mode(RaceDetectionMode::kOff);
  }

  static RaceDetector& detector() { return *RaceDetector::get(); }
  static void run(Stream& stream, const MemoryUse& memory, const char* kernel = "test") {
    enqueue(stream, kernel, {&memory, 1}, [&] { enqueue_nothing(stream); });
  }
  static void enqueue(Stream& stream, const char* kernel, std::span<const MemoryUse> memory,
                      const std::function<void()>& enqueue) {
    Launch launch{.stream = stream, .name = kernel, .memory = memory};
    checks::enqueue_checked(launch, enqueue);
  }
  static void run_graph(Stream& stream, CaptureId id, const Stream* last,
                        const std::function<void()>& enqueue) {
    Launch launch{.stream = stream, .name = "graph", .graph = id, .last = last};
    checks::enqueue_checked(launch, enqueue);
  }
  // The report; empty if there is no race.
  static std::string race(Stream& stream, const MemoryUse& memory) {
    return text_of([&] { run(stream, memory, "second"); });
  }
  static std::string race_on_host(const MemoryUse& memory) {
    return text_of([&] { detector().host_access("host", memory); });
  }
  template <class F>
  static std::string text_of(F f) {
    try {
      f();
    } catch (const RaceError& error) {
      return error.what();
    }
    return "";
  }
  static void expect_race(const std::string& report, const std::string& part = "unsynchronized") {
    EXPECT_PRED2(contains, report, part);
  }

  OwnStream own_[3];
  Stream& a = *own_[0];
  Stream& b = *own_[1];
  Stream& c = *own_[2];
};

TEST_F(RaceDetectorTest, TwoStreamsThatUseTheSameMemoryMustBeOrderedIfOneWrites) {
  run(a, writes());
  expect_race(race(b, reads()));
  expect_race(race(b, writes()));
  EXPECT_EQ(race(a, writes()), "");
  EXPECT_EQ(race(b, reads(64)), "");
  run(a, reads(512));
  EXPECT_EQ(race(b, reads(512)), "");
  expect_race(race(b, writes(512)));
}

TEST_F(RaceDetectorTest, ACallThatRacesIsNotSubmitted) {
  run(a, writes());
  bool called = false;
  const auto memory = reads();
  EXPECT_THROW(enqueue(b, "second", {&memory, 1}, [&] { called = true; }), RaceError);
  EXPECT_FALSE(called);
  // Nor is it remembered.
  wait_stream(a, b);
  EXPECT_EQ(race(a, writes()), "");
}

// Another thread may take the number before, and get to the check later.
TEST_F(RaceDetectorTest, AccessesOfOneStreamAreInOrderWhicheverIsSeenFirst) {
  AccessHistory history;
  VectorClock first;
  first.advance(1);
  auto second = first;
  second.advance(1);
  history.add(writes(), {.name = "second", .stream = &a}, second);
  const auto none = [](const Access&) { return false; };
  EXPECT_FALSE(history.find_conflict(writes(), first, none));
  VectorClock other;
  other.advance(2);
  EXPECT_TRUE(history.find_conflict(writes(), other, none));
}

TEST_F(RaceDetectorTest, AWaitOrdersThem) {
  run(a, writes());
  wait_stream(b, a);
  EXPECT_EQ(race(b, writes()), "");
  expect_race(race(a, reads()));
  wait_stream(c, b);
  EXPECT_EQ(race(c, writes()), "");
}

TEST_F(RaceDetectorTest, AnEventThatWasRecordedTooEarlyIsNamed) {
  Event event;
  run(a, reads(1024));
  event.record(a);
  run(a, writes());
  event.wait(b);
  expect_race(race(b, reads()), "was recorded before");
}

TEST_F(RaceDetectorTest, TheHostMustHaveWaited) {
  run(a, writes());
  expect_race(race_on_host(reads()), "Before the host uses the memory");
  b.synchronize();
  expect_race(race_on_host(reads()));
  a.synchronize();
  EXPECT_EQ(race_on_host(writes()), "");
  EXPECT_EQ(race(b, writes()), "");
}

TEST_F(RaceDetectorTest, ElementsThatDependOnValuesAreNotComparedWithEachOther) {
  run(a, some_of(writes()));
  EXPECT_EQ(race(b, some_of(writes(0, 128))), "");
  expect_race(race(c, reads()));
}

TEST_F(RaceDetectorTest, AnEarlierAccessIsNotForgottenForOneThatReplacesItInPart) {
  run(a, writes(0, 64));
  wait_stream(b, a);
  run(b, writes(0, 32));
  expect_race(race(c, reads(0, 8)));
  expect_race(race(c, reads(48, 8)));
  wait_stream(c, b);
  EXPECT_EQ(race(c, reads()), "");
}

TEST_F(RaceDetectorTest, MemoryThatIsReusedIsComparedWithItsEarlierUse) {
  detector().allocated(at(0), 256, a);
  run(a, writes());
  wait_stream(b, a);
  run(b, reads());
  detector().freed(at(0));
  detector().allocated(at(0), 128, a);
  expect_race(race(a, writes()), "Call record_stream() of that tensor");
  EXPECT_EQ(race(b, writes()), "");
}

TEST_F(RaceDetectorTest, TheAllocatorWaitsForStreamsThatWereRecorded) {
  detector().allocated(at(0), 256, a);
  wait_stream(b, a);
  run(b, writes());
  run(a, reads(128));
  detector().used_by_stream(at(0), b);
  detector().used_by_stream(at(0), a);
  detector().freed(at(0));
  detector().allocated(at(0), 256, a);
  EXPECT_EQ(race(a, writes(0, 256)), "");
  // Of the stream that the memory belongs to, no work was awaited.
  expect_race(race(c, writes(128)));
}

TEST_F(RaceDetectorTest, MemoryMayBeSplitAndJoinedAnyNumberOfTimes) {
  for (int round = 0; round < 200; ++round) {
    detector().allocated(at(0), 4096, a);
    run(a, reads(0, 4096));
    detector().freed(at(0));
    for (std::size_t i = 0; i < 8; ++i) detector().allocated(at(512 * i), 512, a);
    run(a, reads(1024, 32));
    for (std::size_t i = 0; i < 8; ++i) detector().freed(at(512 * i));
  }
  expect_race(race(b, writes(4000, 8)));
  EXPECT_EQ(race(a, writes(0, 4096)), "");
}

TEST_F(RaceDetectorTest, WithinACaptureTheEdgesOfTheGraphCount) {
  const auto id = begin_capture(a, CaptureMode::kRelaxed);
  wait_stream(b, a);
  run(a, writes());
  expect_race(race(b, reads()));
  wait_stream(b, a);
  EXPECT_EQ(race(b, reads()), "");
  wait_stream(a, b);
  run(a, writes(32));
  const auto exec = GraphExec::make(end_capture(a));
  run_graph(c, id, nullptr, [&] { exec->enqueue(c); });
  expect_race(race(b, reads(0, 8)), "in a graph");
  EXPECT_EQ(race(b, reads(128)), "");
  detector().graph_destroyed(id);
}

// Sleeps, for example.
TEST_F(RaceDetectorTest, InACaptureCommandsThatUseNoMemoryOrderOnlyWhatTheyFollow) {
  const auto id = begin_capture(a, CaptureMode::kRelaxed);
  enqueue_nothing(a);
  wait_stream(b, a);
  run(a, writes());
  for (int i = 0; i < 3; ++i) enqueue_nothing(b);
  expect_race(race(b, reads()));
  wait_stream(b, a);
  for (int i = 0; i < 3; ++i) enqueue_nothing(b);
  EXPECT_EQ(race(b, reads()), "");
  wait_stream(a, b);
  end_capture(a);
  detector().graph_destroyed(id);
}

TEST_F(RaceDetectorTest, ARunOfAGraphIsComparedWithOtherWork) {
  const auto id = begin_capture(a, CaptureMode::kRelaxed);
  run(a, reads());
  run(a, writes(128));
  const auto exec = GraphExec::make(end_capture(a));
  run(b, writes(0, 8));
  EXPECT_THROW(run_graph(a, id, nullptr, [] { FAIL(); }), RaceError);
  wait_stream(a, b);
  run_graph(a, id, nullptr, [&] { exec->enqueue(a); });
  EXPECT_EQ(race(b, reads()), "");
  expect_race(race(b, writes(160)));
  // Runs of one graph are in order, those of two graphs are not.
  run_graph(b, id, exec->stream_of_last_run(), [&] { exec->enqueue(b); });
  EXPECT_THROW(run_graph(c, id, nullptr, [] { FAIL(); }), RaceError);
  detector().graph_destroyed(id);
}

TEST_F(RaceDetectorTest, ARunOfAnUnknownGraphIsEnqueuedWithoutTheLock) {
  bool called = false;
  run_graph(a, 12345, nullptr, [&] {
    run(a, writes());  // takes the lock
    called = true;
  });
  EXPECT_TRUE(called);
}

TEST_F(RaceDetectorTest, ACommandThatWasNotEnqueuedIsForgotten) {
  const auto memory = writes();
  EXPECT_THROW(enqueue(a, "test", {&memory, 1}, [] { throw std::runtime_error("no room"); }),
               std::runtime_error);
  EXPECT_EQ(race(b, writes()), "");
}

TEST_F(RaceDetectorTest, MemoryThatBeginsAnotherLifeHasNoPast) {
  MemoryUse inside = writes(128);
  inside.storage = at(128);
  inside.storage_bytes = 64;
  run(a, inside);
  detector().reused(at(0), 256, BlockKind::kPinned);
  EXPECT_EQ(race(b, writes(0, 256)), "");
}

TEST_F(RaceDetectorTest, WhatSpansSeveralBlocksIsKeptInEach) {
  detector().allocated(at(0), 256, a);
  detector().allocated(at(256), 256, a);
  run(b, writes(128, 256));
  expect_race(race(c, reads(128, 16)));
  expect_race(race(c, reads(320, 16)));
  detector().used_by_stream(at(256), b);
  detector().freed(at(256));
  EXPECT_EQ(race(c, reads(320, 16)), "");
  expect_race(race(c, reads(128, 16)));
}

TEST_F(RaceDetectorTest, TheReportNamesBothAccesses) {
  static constexpr LaunchSiteFinder kFinder{
      .describe = [](LaunchSite) { return std::string("a.py:1 in f"); }};
  install_launch_site_finder(kFinder);
  detector().allocated(at(0), 4096, a);
  std::vector<std::int64_t> sizes{4, 8};
  std::vector<std::int64_t> strides{16, 1};
  MemoryUse rows{.storage = at(0),
                 .storage_bytes = 4096,
                 .footprint = {at(0), 4, sizes, strides},
                 .writes = true,
                 .number = 1,
                 .itemsize = 4,
                 .dtype = "float32",
                 .sizes = sizes,
                 .strides = strides};
  run(a, writes(2 * 64 + 12, 4), "aten::first");
  const auto report = race(b, rows);
  const auto first = "stream " + std::to_string(a.id()) + " of openreg:0";
  const auto second = "stream " + std::to_string(b.id()) + " of openreg:0";
  expect_race(report, "aten::first wrote its tensor 0 (4 elements, bytes) on " + first);
  expect_race(report, "second writes its tensor 1 (32 elements, float32) on " + second);
  expect_race(
      report,
      "[2, 3] of the second tensor, byte 140 of a block of 4.00 KiB, allocated on " + first);
  expect_race(report, "Let " + second + " wait for " + first);
}

TEST_F(RaceDetectorTest, AWarningIsGivenOnceForEachPairOfLines) {
  static std::vector<std::string> warnings;
  install_race_hooks({.warn = [](const std::string& text) { warnings.push_back(text); }});
  warnings.clear();
  RaceDetector::set_mode(RaceDetectionMode::kWarn);
  for (int i = 0; i < 3; ++i) {
    run(a, writes());
    run(b, writes());
  }
  EXPECT_EQ(warnings.size(), 1);
  run(c, reads(), "another");  // a and b have both written
  EXPECT_EQ(warnings.size(), 2);
  wait_stream(c, a);
  wait_stream(c, b);
  run(a, writes(), "first");
  run(c, reads(), "another");
  EXPECT_EQ(warnings.size(), 5);  // first after test and after another, another after first
}

// Random programs, compared with an order that is computed from the edges, one by one.
class Model {
 public:
  static constexpr int kStreams = 4;
  static constexpr int kMost = 256;
  using Set = std::bitset<kMost>;  // accesses

  struct Access {
    int stream;
    MemoryUse memory;
  };

  // Whether an access would race.
  bool races(int stream, const MemoryUse& memory) const {
    const auto known = stream < 0 ? seen_ : known_[stream] | seen_;
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      const auto& other = accesses_[i];
      if (known[i] || (!other.memory.writes && !memory.writes)) continue;
      if (common_byte(other.memory.footprint, memory.footprint)) return true;
    }
    return false;
  }
  void add(int stream, const MemoryUse& memory) {
    known_[stream] |= seen_;
    accesses_.push_back({stream, memory});
    known_[stream].set(accesses_.size() - 1);
  }
  Set record(int stream) const { return known_[stream] | seen_; }
  void wait(int stream, const Set& event) { known_[stream] |= event; }
  void see(const Set& event) { seen_ |= event; }
  bool full() const { return accesses_.size() == kMost; }

 private:
  std::vector<Access> accesses_;
  std::array<Set, kStreams> known_;
  Set seen_;
};

TEST_F(RaceDetectorTest, AgreesWithTheOrderOfRandomPrograms) {
  const auto seed = memory::testing::seed();
  SCOPED_TRACE("OPENREG_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  OwnStream own[Model::kStreams];
  int races = 0;
  int accesses = 0;
  for (int program = 0; program < 2000; ++program) {
    synchronize_device(0);
    Model model;
    std::array<Event, 3> events;
    std::array<Model::Set, 3> recorded{};
    std::array<bool, 3> is_recorded{};
    for (int step = 0; step < 60 && !model.full(); ++step) {
      const int s = below(Model::kStreams);
      Stream& stream = *own[s];
      const auto e = static_cast<std::size_t>(below(3));
      switch (below(12)) {
        case 0:
          events[e].record(stream);
          recorded[e] = model.record(s);
          is_recorded[e] = true;
          break;
        case 1:
          events[e].wait(stream);
          if (is_recorded[e]) model.wait(s, recorded[e]);
          break;
        case 2: {
          const int other = below(Model::kStreams);
          wait_stream(stream, *own[other]);
          model.wait(s, model.record(other));
          break;
        }
        case 3:
          if (below(8) != 0) break;
          stream.synchronize();
          model.see(model.record(s));
          break;
        case 4: {
          const auto memory = use(static_cast<std::size_t>(below(4)) * 16, 16, below(2) == 0);
          ASSERT_EQ(!race_on_host(memory).empty(), model.races(-1, memory))
              << "program " << program;
          break;
        }
        default: {
          MemoryUse memory = use(0, 0, below(3) == 0);
          const std::int64_t sizes[] = {1 + below(4), 1 + below(3)};
          const std::int64_t strides[] = {1 + below(8), 1 + below(3)};
          memory.footprint = {at(static_cast<std::size_t>(below(24)) * 4), 4, sizes, strides};
          const bool expected = model.races(s, memory);
          ASSERT_EQ(!race(stream, memory).empty(), expected)
              << "program " << program << ", step " << step;
          if (!expected) model.add(s, memory);
          races += expected ? 1 : 0;
          ++accesses;
        }
      }
    }
    // The next program uses the memory anew.
    RaceDetector::set_mode(RaceDetectionMode::kOff);
    RaceDetector::set_mode(RaceDetectionMode::kError);
  }
  EXPECT_GT(races, 1000);
  EXPECT_GT(accesses, 3 * races / 2);
}

TEST_F(RaceDetectorTest, ThreadsThatUseTheirOwnMemoryNeverRace) {
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      OwnStream own;
      for (int i = 0; i < 500; ++i) {
        const auto begin = 4096 * t;
        detector().allocated(at(begin), 4096, *own);
        EXPECT_EQ(race(*own, writes(begin + 64, 64)), "");
        EXPECT_EQ(race(*own, reads(begin, 4096)), "");
        detector().freed(at(begin));
        if (i % 100 == 0) own->synchronize();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(RaceDetectorTest, OfTwoThreadsThatRaceAtTheSameMomentOneIsTold) {
  constexpr std::size_t kRounds = 50;
  constexpr std::size_t kUses = 4;
  std::barrier start(2);
  std::atomic<std::size_t> races{0};
  const auto play = [&](Stream& stream) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::vector<MemoryUse> memory;
      for (std::size_t i = 0; i < kUses; ++i) memory.push_back(writes(64 * (kUses * round + i)));
      start.arrive_and_wait();
      const auto report = text_of([&] { enqueue(stream, "test", memory, [] {}); });
      if (report != "") races.fetch_add(1);
    }
  };
  std::thread other([&] { play(b); });
  play(a);
  other.join();
  EXPECT_EQ(races.load(), kRounds);
}

// --- Ranks that are threads ---

/// A program for several ranks, whose collectives are the same and whose other steps are not; and
/// what happens before what in it, whichever rank's thread is ahead.
class RankProgram {
 public:
  static constexpr std::size_t kRanks = 3;
  static constexpr std::size_t kCollectives = 3;
  enum class Kind { kAccess, kWait, kCollective };
  struct Step {
    Kind kind;
    std::size_t rank;
    std::size_t stream = 0;  // of all ranks; the first one of a rank takes part in collectives
    std::size_t other = 0;   // stream that it waits for; number of the collective
    std::size_t memory = 0;
    bool writes = false;
  };
  struct Collective {
    bool from_root = false;
    bool to_root = false;
    std::size_t root = 0;

    bool orders(std::size_t before, std::size_t after) const {
      return before != after && (!from_root || before == root) && (!to_root || after == root);
    }
  };

  explicit RankProgram(std::mt19937& random) {
    const auto below = [&](std::size_t n) { return std::size_t{random() % n}; };
    for (auto& each : collectives) {
      const auto kind = below(4);
      each = {.from_root = kind == 1, .to_root = kind == 2, .root = below(kRanks)};
    }
    std::array<std::vector<Step>, kRanks> of_rank;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t i = 0; i <= kCollectives; ++i) {
        for (auto more = below(4); more > 0; --more) {
          const auto stream = 2 * rank + below(2);
          if (below(3) == 0) {
            of_rank[rank].push_back({Kind::kWait, rank, stream, stream ^ 1});
          } else {
            of_rank[rank].push_back({Kind::kAccess, rank, stream, 0, below(4), below(3) == 0});
          }
        }
        if (i < kCollectives) of_rank[rank].push_back({Kind::kCollective, rank, 2 * rank, i});
      }
    }
    std::array<std::size_t, kRanks> next{};
    for (;;) {
      std::vector<std::size_t> left;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        if (next[rank] < of_rank[rank].size()) left.push_back(rank);
      }
      if (left.empty()) break;
      const auto rank = left[below(left.size())];
      steps.push_back(of_rank[rank][next[rank]++]);
    }
    find_order();
  }

  bool race(std::size_t i, std::size_t j) const {
    const auto& a = steps[i];
    const auto& b = steps[j];
    return a.kind == Kind::kAccess && b.kind == Kind::kAccess && a.memory == b.memory &&
           (a.writes || b.writes) && !before[j][i] && !before[i][j];
  }

  std::array<Collective, kCollectives> collectives;
  std::vector<Step> steps;  // in the order of their submission
  std::vector<std::bitset<128>> before;

 private:
  // Repeated, because a collective orders what is submitted later before what was submitted
  // earlier.
  void find_order() {
    before.resize(steps.size());
    std::array<std::array<std::bitset<128>, kRanks>, kCollectives> parts{};
    auto parts_before = parts;
    do {
      parts_before = parts;
      std::array<std::bitset<128>, 2 * kRanks> clocks{};
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto& step = steps[i];
        auto& clock = clocks[step.stream];
        before[i] = clock;
        if (step.kind == Kind::kAccess) clock.set(i);
        if (step.kind == Kind::kWait) clock |= clocks[step.other];
        if (step.kind != Kind::kCollective) continue;
        parts[step.other][step.rank] = clock;
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
          if (collectives[step.other].orders(rank, step.rank)) clock |= parts[step.other][rank];
        }
      }
    } while (parts != parts_before);
  }
};

/// Runs a function on another thread, and waits for it.
class RankThread {
 public:
  RankThread() {
    run([this] { number_ = this_thread_number(); });
  }
  ~RankThread() { run({}); }
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  void run(std::function<void()> work) {
    work_ = std::move(work);
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
  }
  std::uint32_t number() const { return number_; }

 private:
  std::function<void()> work_;
  std::barrier<> turn_{2};
  std::uint32_t number_ = 0;
  std::jthread thread_{[this] {
    for (bool goes_on = true; goes_on;) {
      turn_.arrive_and_wait();
      goes_on = work_ != nullptr;
      if (goes_on) work_();
      turn_.arrive_and_wait();
    }
  }};
};

// A report is never wrong, and most races are found, even if a thread is far ahead of others.
TEST_F(RaceDetectorTest, OfRanksThatAreThreadsOnlyRacesAreReported) {
  const auto seed = testing::seed();
  SCOPED_TRACE("OPENREG_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  using Kind = RankProgram::Kind;
  std::array<RankThread, RankProgram::kRanks> threads;
  int races = 0;
  int found = 0;
  for (int repetition = 0; repetition < 60; ++repetition) {
    const RankProgram program(random);
    auto& order = *HappensBefore::get();
    std::array<std::uint32_t, RankProgram::kRanks> ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank] =
          order.add_milestones(static_cast<std::uint64_t>(repetition), threads[rank].number());
    OwnStream own[2 * RankProgram::kRanks];
    detector().forgotten(at(0), 4096);
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const auto& step = program.steps[i];
      auto& stream = *own[step.stream];
      std::string report;
      threads[step.rank].run([&] {
        if (step.kind == Kind::kWait) wait_stream(stream, *own[step.other]);
        if (step.kind == Kind::kAccess)
          report = race(stream, use(64 * step.memory, 64, step.writes));
        if (step.kind != Kind::kCollective) return;
        order.reach({ranks[step.rank], step.other + 1}, stream);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
          if (program.collectives[step.other].orders(rank, step.rank))
            order.wait(stream, SubmissionId{ranks[rank], step.other + 1});
        }
      });
      if (step.kind != Kind::kAccess) continue;
      const bool is_race =
          std::ranges::any_of(done, [&](std::size_t earlier) { return program.race(earlier, i); });
      EXPECT_TRUE(is_race || report.empty()) << repetition << ", step " << i << report;
      races += is_race ? 1 : 0;
      found += report.empty() ? 0 : 1;
      if (report.empty()) done.push_back(i);
    }
    synchronize_device(0);
  }
  EXPECT_GT(races, 30);
  EXPECT_GT(found, races / 2);
}

}  // namespace
}  // namespace openreg::memory
