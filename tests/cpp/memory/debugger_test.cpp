// Run with TORCH_OPENREG_DEBUG_MEMORY=1.
#include "memory/debugger.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "base/error.h"
#include "memory/device_heap.h"
#include "runtime/callbacks.h"
#include "runtime/capture.h"
#include "runtime/event.h"
#include "runtime/graph_exec.h"
#include "runtime/stream.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

std::byte* aperture(void* address) {
  return static_cast<std::byte*>(AddressSpace::get().aperture(address));
}

class DebuggerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AddressSpace::get();
    Debugger::start_if_enabled();
    ASSERT_NE(Debugger::get(), nullptr) << "TORCH_OPENREG_DEBUG_MEMORY is not 1";
  }
  // No test leaves a failure that nobody has raised.
  void TearDown() override { EXPECT_EQ(failure(stream), "nothing"); }

  void* allocate(std::size_t bytes, Stream& on, const char* by = "the test") {
    std::string refusal;
    where = by;
    return checks::allocate(
               heap, bytes, on, [] { return where; }, {}, refusal)
        .address;
  }
  void free(void* address, const char* by = "the test") {
    where = by;
    checks::free(heap, address, [] { return where; });
  }
  void use(void* address, Stream& on) {
    const MemoryUse memory[] = {
        {.storage = address, .storage_bytes = 1, .footprint = {address, 1}}};
    Launch launch{.stream = on, .name = empty_kernel().name(), .memory = memory};
    checks::enqueue_checked(launch, [&] { enqueue_nothing(on); });
  }
  /// A new block of `stream` in memory that `other` has used and not been waited for.
  void* used_again_after(Stream& other) {
    void* const address = allocate(1000, stream);
    wait_stream(other, stream);
    use(address, other);
    free(address);
    void* const again = allocate(1000, stream);
    EXPECT_EQ(again, address);
    return again;
  }
  void write(void* address, Stream& on) {
    enqueue(on, [to = aperture(address)] { *to = std::byte{1}; });
  }
  // The error that the next synchronisation raises.
  static std::string failure(Stream& of) {
    return error_of([&] { of.synchronize(); });
  }

  static inline thread_local std::string where;
  DeviceHeap heap{0};  // separate memory, so that nothing that others have freed is reused here
  Stream& stream = default_stream(0);
};

TEST_F(DebuggerTest, FreshMemoryIsNotANumber) {
  for (int round = 0; round < 2; ++round) {
    void* const address = allocate(100 * sizeof(float), stream);
    stream.synchronize();
    std::vector<float> floats(100);
    std::memcpy(floats.data(), aperture(address), 100 * sizeof(float));
    EXPECT_TRUE(std::ranges::all_of(floats, [](float f) { return std::isnan(f); }));
    write(address, stream);
    free(address);
    EXPECT_EQ(failure(stream), "nothing");
  }
}

TEST_F(DebuggerTest, MemoryThatIsInPlaceOfWhatWasFreedMayBeUsed) {
  auto* const address = static_cast<std::byte*>(allocate(4096, stream));
  free(address);
  stream.synchronize();
  EXPECT_NE(error_of([&] { use(address, stream); }), "nothing");
  Debugger::get()->forgotten(address, 1024);
  EXPECT_EQ(error_of([&] { use(address, stream); }), "nothing");
  EXPECT_NE(error_of([&] { use(address + 1024, stream); }), "nothing") << "the rest";
  Debugger::get()->forgotten(address - 4096, 12288);
  EXPECT_EQ(error_of([&] { use(address + 1024, stream); }), "nothing");
}

TEST_F(DebuggerTest, WhatAPoisonedStreamSkipsKeepsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own, which does not say what is in use";
#endif
  const auto in_use_after = [&](int blocks) {
    for (int i = 0; i < blocks; ++i) free(allocate(4096, stream));
    stream.drain();
    return mallinfo2().uordblks;
  };
  constexpr int kBlocks = 2000;
  enqueue(stream, [] { throw std::runtime_error("poison"); });
  const auto before = in_use_after(100);
  const auto after = in_use_after(kBlocks);
  EXPECT_LT(after, before + kBlocks * 50);  // a record is larger
  EXPECT_NE(failure(stream), "nothing");
}

TEST_F(DebuggerTest, FreedMemoryIsNotANumberInAnyFloatingPointType) {
  void* const address = allocate(4096, stream);
  std::byte* const memory = aperture(address);
  free(address);
  stream.synchronize();
  double wide = 0;
  float single = 0;
  std::uint16_t half = 0;
  std::memcpy(&wide, memory + 64, sizeof wide);
  std::memcpy(&single, memory + 64, sizeof single);
  std::memcpy(&half, memory + 64, sizeof half);
  EXPECT_TRUE(std::isnan(wide));
  EXPECT_TRUE(std::isnan(single));
  EXPECT_EQ(half & 0x7C00, 0x7C00) << "half: the exponent of NaN and infinity";
  EXPECT_NE(half & 0x03FF, 0) << "not infinity";
  EXPECT_EQ(half & 0x7F80, 0x7F80) << "bfloat16";
  EXPECT_NE(half & 0x007F, 0) << "not infinity";
}

TEST_F(DebuggerTest, AWriteBehindTheEndIsFoundAtTheFree) {
  void* const address = allocate(101, stream, "here it began");
  write(static_cast<std::byte*>(address) + 101, stream);
  free(address, "there it ended");
  const std::string error = failure(stream);
  EXPECT_PRED2(contains, error, "memory past the end of a block was written: 101 bytes");
  EXPECT_PRED2(contains, error, "here it began");
  EXPECT_PRED2(contains, error, "there it ended");
}

TEST_F(DebuggerTest, AWriteInFrontIsFoundBySynchronising) {
  void* const address = allocate(1000, stream);
  write(static_cast<std::byte*>(address) - 1, stream);
  stream.synchronize();
  const std::string error = error_of([] { Debugger::get()->host_waited(0); });
  EXPECT_PRED2(contains, error,
               "buffer underflow: memory before the start of a block was written: 1000 bytes");
  EXPECT_EQ(error_of([] { Debugger::get()->host_waited(0); }), "nothing") << "said once";
  EXPECT_EQ(error_of([] { Debugger::get()->host_waited(1); }), "nothing");
  free(address);
}

TEST_F(DebuggerTest, AWriteAfterTheFreeIsFoundWhenTheMemoryIsUsedAgain) {
  void* const address = allocate(4000, stream, "the first owner");
  free(address);
  write(static_cast<std::byte*>(address) + 3000, stream);
  void* const other = allocate(200, stream);
  EXPECT_EQ(failure(stream), "nothing") << "the part that is used again is intact";
  void* const third = allocate(800, stream);
  const std::string error = failure(stream);
  EXPECT_PRED2(contains, error, "use after free: freed memory was written: 4000 bytes");
  EXPECT_PRED2(contains, error, "the first owner");
  free(other);
  free(third);
}

TEST_F(DebuggerTest, MemoryThatIsUsedAgainWhileAnotherStreamUsesItIsFound) {
  OwnStream other;
  void* const address = allocate(1000, stream, "the owner");
  wait_stream(*other, stream);
  use(address, *other);
  EXPECT_TRUE(happens([&] { return other->idle(); })) << "which is luck";
  free(address, "the end");
  void* const again = allocate(1000, stream);
  ASSERT_EQ(again, address);
  const std::string error = error_of([&] { use(again, stream); });
  EXPECT_PRED2(contains, error,
               "test_nothing was called with memory that was freed while stream " +
                   std::to_string(other->id()) + " of openreg:0 still used it");
  EXPECT_PRED2(contains, error, "the owner");
  EXPECT_PRED2(contains, error, "the end");
  wait_stream(stream, *other);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
}

// What a program can do between a free and the next use of the memory, all of which are an order.
TEST_F(DebuggerTest, AWaitBeforeTheMemoryIsUsedAgainIsAnOrder) {
  OwnStream other;
  OwnStream third;
  Event event;
  const std::function<void()> orders[] = {
      [&] { wait_stream(stream, *other); },
      [&] {
        event.record(*other);
        event.wait(stream);
      },
      [&] {
        wait_stream(*third, *other);
        wait_stream(stream, *third);
      },
      [&] { other->synchronize(); },
      [&] {
        event.record(*other);
        event.synchronize();
      },
      [&] { synchronize_device(0); },
  };
  enum class When { kBeforeTheFree, kBeforeTheAllocation, kBeforeTheUse };
  for (const auto& order : orders) {
    for (const auto when :
         {When::kBeforeTheFree, When::kBeforeTheAllocation, When::kBeforeTheUse}) {
      void* const address = allocate(1000, stream);
      wait_stream(*other, stream);
      use(address, *other);
      if (when == When::kBeforeTheFree) order();
      free(address);
      if (when == When::kBeforeTheAllocation) order();
      void* const again = allocate(1000, stream);
      ASSERT_EQ(again, address);
      if (when == When::kBeforeTheUse) {
        EXPECT_NE(error_of([&] { use(again, stream); }), "nothing");
        order();
      }
      EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
      free(again);
      EXPECT_EQ(failure(stream), "nothing");
    }
  }
}

TEST_F(DebuggerTest, TheDebuggerDoesNotTouchWhatAnotherStreamStillUses) {
  OwnStream other;
  void* const address = allocate(1000, stream);
  enqueue(stream, [to = aperture(address)] { std::memset(to, 7, 1000); });
  wait_stream(*other, stream);
  std::byte last{};
  {
    Blocker blocker(*other);
    use(address, *other);
    enqueue(*other, [&, from = aperture(address)] { last = from[999]; });
    free(address);
    void* const again = allocate(1000, stream);
    ASSERT_EQ(again, address);
    stream.drain();  // what the debugger has enqueued
    free(again);
    stream.drain();
  }
  other->synchronize();
  EXPECT_EQ(last, std::byte{7});
}

TEST_F(DebuggerTest, UsesAreHandedDownToEachPartOfTheMemory) {
  OwnStream other;
  void* const address = allocate(4000, stream, "the owner");
  wait_stream(*other, stream);
  use(address, *other);
  free(address);
  void* const first = allocate(100, stream);
  void* const second = allocate(100, stream);
  free(first);
  void* const third = allocate(100, stream);
  ASSERT_EQ(third, first);
  for (void* const part : {second, third}) {
    const std::string error = error_of([&] { use(part, stream); });
    EXPECT_PRED2(contains, error, "4000 bytes on openreg:0");
  }
  wait_stream(stream, *other);
  for (void* const part : {second, third}) {
    EXPECT_EQ(error_of([&] { use(part, stream); }), "nothing");
    free(part);
  }
}

TEST_F(DebuggerTest, OfSeveralStreamsEachOneHasToBeWaitedFor) {
  OwnStream other[3];
  void* const address = allocate(1000, stream);
  for (auto& each : other) {
    wait_stream(*each, stream);
    use(address, *each);
  }
  free(address);
  void* const again = allocate(1000, stream);
  for (auto& each : other) {
    EXPECT_NE(error_of([&] { use(again, stream); }), "nothing");
    wait_stream(stream, *each);
  }
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
}

TEST_F(DebuggerTest, AStreamThatKnowsTheOtherOneMayUseTheMemoryFirst) {
  OwnStream other;
  void* const again = used_again_after(*other);
  EXPECT_EQ(error_of([&] { use(again, *other); }), "nothing");
  EXPECT_NE(error_of([&] { use(again, stream); }), "nothing");
  wait_stream(stream, *other);
  free(again);
}

TEST_F(DebuggerTest, AHostThatUsesTheMemoryAgainHasToHaveWaited) {
  OwnStream other;
  void* const again = used_again_after(*other);
  const MemoryUse memory{.storage = again, .storage_bytes = 1, .footprint = {again, 1}};
  const auto access = [&] { Debugger::get()->host_access("host_copy", memory); };
  stream.synchronize();
  EXPECT_PRED2(contains, error_of(access),
               "host_copy was called with memory that was freed while stream");
  other->synchronize();
  EXPECT_EQ(error_of(access), "nothing");
  free(again);
}

TEST_F(DebuggerTest, MemoryThatTheDeviceGotBackIsNobodys) {
  OwnStream other;
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  void* const address = allocate(kBytes, stream);
  wait_stream(*other, stream);
  use(address, *other);
  free(address);
  heap.empty_cache();
  void* const again = allocate(kBytes, stream);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
  EXPECT_EQ(failure(stream), "nothing");
  heap.empty_cache();
}

TEST_F(DebuggerTest, AnAllocationThatHadToWaitForTheDeviceMayUseTheMemory) {
  OwnStream other;
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  void* const address = allocate(kBytes, stream);
  wait_stream(*other, stream);
  use(address, *other);
  free(address);
  heap.set_fraction(static_cast<double>(kBytes + (std::size_t{6} << 20)) /
                    static_cast<double>(AddressSpace::get().capacity()));
  void* const again = allocate(kBytes + (std::size_t{2} << 20), *other);
  heap.set_fraction(1);
  ASSERT_NE(again, nullptr);
  wait_stream(stream, *other);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
  EXPECT_EQ(failure(*other), "nothing");
  EXPECT_EQ(failure(stream), "nothing");
  heap.empty_cache();
}

TEST_F(DebuggerTest, AUseOfAnotherDevicesStreamCountsToo) {
  if (AddressSpace::get().devices() < 2) GTEST_SKIP() << "there is one device";
  auto& elsewhere = default_stream(1);
  void* const again = used_again_after(elsewhere);
  EXPECT_NE(error_of([&] { use(again, stream); }), "nothing");
  wait_stream(stream, elsewhere);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
}

TEST_F(DebuggerTest, ARecordedStreamNeedsNoWait) {
  OwnStream other;
  void* const address = allocate(1000, stream);
  wait_stream(*other, stream);
  use(address, *other);
  checks::record_stream(heap, address, *other);
  free(address);
  EXPECT_TRUE(happens([&] { return other->idle(); }));
  void* const again = allocate(1000, stream);
  ASSERT_EQ(again, address);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
}

TEST_F(DebuggerTest, AWriteBehindTheEndIsFoundAlthoughAnotherStreamUsesTheMemory) {
  OwnStream other;
  void* const address = allocate(101, stream);
  write(static_cast<std::byte*>(address) + 101, stream);
  wait_stream(*other, stream);
  use(address, *other);
  free(address);
  EXPECT_PRED2(contains, failure(stream), "memory past the end of a block was written: 101 bytes");
}

// Random programs on several streams, with clocks of their own: a use is refused if and only if the
// stream has not waited for another one's use of the same memory in an earlier block, for which the
// block's stream had not waited either when it got the memory.
TEST_F(DebuggerTest, RandomProgramsAreRefusedIfAnOrderIsMissing) {
  constexpr std::size_t kStreams = 4;
  using Clock = std::array<int, kStreams>;
  struct Use {
    std::size_t stream;
    int number;
    std::byte* begin;
    std::byte* end;
    bool operator==(const Use&) const = default;
  };
  struct Block {
    std::byte* begin;
    std::byte* end;
    std::size_t owner;
    std::vector<Use> earlier{};
    std::vector<Use> uses{};
  };
  const auto seed = testing::seed();
  SCOPED_TRACE("OPENREG_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return std::size_t{random() % n}; };
  int refused = 0;
  int passed = 0;
  for (int program = 0; program < 100; ++program) {
    OwnStream own[kStreams];
    std::array<Clock, kStreams> clocks{};
    std::array<Event, 2> events;
    std::array<Clock, 2> recorded{};
    std::vector<Block> blocks;
    std::vector<Use> left;  // in freed memory
    const auto includes = [](const Clock& clock, const Use& use) {
      return clock[use.stream] >= use.number;
    };
    const auto join = [](Clock& into, const Clock& other) {
      for (std::size_t i = 0; i < kStreams; ++i) into[i] = std::max(into[i], other[i]);
    };
    for (int step = 0; step < 80; ++step) {
      const auto s = below(kStreams);
      const auto what = below(12);
      if (what < 3 || blocks.empty()) {
        const std::size_t bytes = 400 * (1 + below(3));
        auto* const begin = static_cast<std::byte*>(allocate(bytes, *own[s]));
        Block block{.begin = begin - 512, .end = begin + bytes + 512, .owner = s};
        for (const auto& use : left) {
          if (use.begin < block.end && block.begin < use.end && !includes(clocks[s], use))
            block.earlier.push_back(use);
        }
        blocks.push_back(std::move(block));
      } else if (what < 5) {
        const auto i = below(blocks.size());
        auto& block = blocks[i];
        free(block.begin + 512);
        for (auto uses : {block.earlier, block.uses}) {
          for (auto& use : uses) {
            use.begin = block.begin;
            use.end = block.end;
            if (!includes(clocks[block.owner], use)) left.push_back(use);
          }
        }
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (what < 9) {
        auto& block = blocks[below(blocks.size())];
        const bool expected = std::ranges::any_of(
            block.earlier, [&](const Use& use) { return !includes(clocks[s], use); });
        const auto error = error_of([&] { this->use(block.begin + 512, *own[s]); });
        EXPECT_EQ(error != "nothing", expected) << "program " << program << ", step " << step;
        ++(expected ? refused : passed);
        if (!expected && s != block.owner)
          block.uses.push_back({s, ++clocks[s][s], block.begin, block.end});
      } else if (what == 9) {
        const auto other = below(kStreams);
        wait_stream(*own[s], *own[other]);
        join(clocks[s], clocks[other]);
      } else if (what == 10) {
        const auto which = below(events.size());
        if (below(2) == 0) {
          events[which].record(*own[s]);
          recorded[which] = clocks[s];
        } else {
          events[which].wait(*own[s]);
          join(clocks[s], recorded[which]);
        }
      } else if (below(4) == 0) {
        own[s]->synchronize();
        const auto seen = clocks[s];
        for (auto& clock : clocks) join(clock, seen);
      }
    }
    for (const auto& block : blocks) free(block.begin + 512);
    for (auto& each : own) EXPECT_EQ(failure(*each), "nothing");
    heap.empty_cache();
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(passed, 1000);
}

TEST_F(DebuggerTest, ARunOfAGraphIsAUse) {
  OwnStream captured;
  OwnStream other;
  void* const address = allocate(1000, stream);
  stream.synchronize();
  const auto id = begin_capture(*captured, CaptureMode::kGlobal);
  use(address, *captured);
  const auto exec = GraphExec::make(end_capture(*captured));
  const auto run = [&](Stream& on) {
    Launch launch{.stream = on, .name = "graph", .graph = id, .last = exec->stream_of_last_run()};
    checks::enqueue_checked(launch, [&] { exec->enqueue(on); });
  };
  run(*other);
  free(address);
  EXPECT_PRED2(contains, error_of([&] { run(*other); }), "has been freed since it was captured");
  void* const again = allocate(1000, stream);
  ASSERT_EQ(again, address);
  EXPECT_NE(error_of([&] { use(again, stream); }), "nothing");
  wait_stream(stream, *other);
  EXPECT_EQ(error_of([&] { use(again, stream); }), "nothing");
  free(again);
  Debugger::get()->graph_destroyed(id);
}

TEST_F(DebuggerTest, ARunOfAGraphThatUsesMemoryAgainHasToHaveWaited) {
  OwnStream captured;
  OwnStream other;
  void* const again = used_again_after(*other);
  const auto id = begin_capture(*captured, CaptureMode::kRelaxed);
  EXPECT_EQ(error_of([&] { use(again, *captured); }), "nothing") << "it does not run yet";
  const auto exec = GraphExec::make(end_capture(*captured));
  const auto run = [&] {
    Launch launch{.stream = stream, .name = "graph", .graph = id};
    checks::enqueue_checked(launch, [&] { exec->enqueue(stream); });
  };
  EXPECT_PRED2(contains, error_of(run), "still used it");
  wait_stream(stream, *other);
  EXPECT_EQ(error_of(run), "nothing");
  stream.synchronize();
  Debugger::get()->graph_destroyed(id);
  free(again);
}

TEST_F(DebuggerTest, AFreeAfterTheOtherStreamIsDoneIsRight) {
  OwnStream other;
  void* const waited_for = allocate(1000, stream);
  void* const recorded = allocate(1000, stream);
  stream.synchronize();
  {
    Blocker blocker(*other);
    use(waited_for, *other);
    checks::record_stream(heap, recorded, *other);
    enqueue(*other, [memory = aperture(recorded)] { EXPECT_EQ(*memory, std::byte{0xFF}); });
    Event event;
    event.record(*other);
    event.wait(stream);
    free(waited_for);
    free(recorded);
  }
  EXPECT_EQ(failure(stream), "nothing");
  EXPECT_EQ(failure(*other), "nothing");
}

TEST_F(DebuggerTest, TheFailureOfAStreamThatUsedTheMemoryStaysWithThatStream) {
  OwnStream other;
  void* const address = allocate(1000, stream);
  stream.synchronize();
  enqueue(*other, [] { throw std::runtime_error("on purpose"); });
  use(address, *other);
  other->drain();
  free(address);
  EXPECT_EQ(failure(stream), "nothing");
  EXPECT_PRED2(contains, failure(*other), "on purpose");
}

TEST_F(DebuggerTest, AFreeOnAnotherStreamDoesNotSpoilACapture) {
  OwnStream other;
  OwnStream captured;
  void* const address = allocate(1000, stream);
  stream.synchronize();
  use(address, *other);
  other->synchronize();
  Blocker blocker(stream);
  free(address);
  begin_capture(*captured, CaptureMode::kGlobal);
  blocker.open();
  EXPECT_TRUE(happens([&] { return stream.idle(); }));
  EXPECT_EQ(error_of([&] { end_capture(*captured); }), "nothing");
}

TEST_F(DebuggerTest, ABlockMayBeFreedInACaptureWhileThePreparationIsQueued) {
  Blocker blocker(stream);
  void* const address = allocate(1000, stream);
  begin_capture(stream, CaptureMode::kRelaxed);
  free(address);
  EXPECT_TRUE(end_capture(stream).nodes.empty());
  blocker.open();
  EXPECT_EQ(failure(stream), "nothing");
  void* const again = allocate(1000, stream);
  EXPECT_EQ(again, address);
  free(again);
}

TEST_F(DebuggerTest, ACaptureMayTakeMemoryWhileTheCheckOfItsFreeIsQueued) {
  void* const address = allocate(1000, stream);
  stream.synchronize();
  Blocker blocker(stream);
  free(address);
  begin_capture(stream, CaptureMode::kRelaxed);
  void* const again = allocate(1000, stream);
  EXPECT_EQ(again, address);
  free(again);
  EXPECT_TRUE(end_capture(stream).nodes.empty());
  blocker.open();
}

// Fills the queue of a stream; a host that waits for room in it is interrupted.
class FullQueue {
 public:
  explicit FullQueue(Stream& stream) : limit_(stream, 1), blocker_(stream) {
    install_callbacks({.check_interrupt = [] {
      if (g_interrupts) throw std::runtime_error("interrupted");
    }});
    g_interrupts = true;
  }
  ~FullQueue() { g_interrupts = false; }
  FullQueue(const FullQueue&) = delete;
  FullQueue& operator=(const FullQueue&) = delete;

 private:
  static inline std::atomic<bool> g_interrupts{false};

  const QueueLimit limit_;
  Blocker blocker_;
};

TEST_F(DebuggerTest, AnAllocationThatIsInterruptedLeavesNoBlock) {
  const auto held = [&] {
    return heap.locked([](Heap& of) { return of.statistics().allocated_bytes.current(); });
  };
  {
    const FullQueue full(stream);
    EXPECT_EQ(error_of([&] { allocate(1000, stream); }), "interrupted");
    EXPECT_EQ(held(), 0);
    EXPECT_EQ(Debugger::get()->describe_leaks(), "");
  }
}

TEST_F(DebuggerTest, AFreeNeitherWaitsForRoomNorIsInterrupted) {
  OwnStream other;
  void* const address = allocate(1000, stream);
  void* const recorded = allocate(1000, stream);
  checks::record_stream(heap, recorded, *other);
  write(static_cast<std::byte*>(address) + 1000, stream);
  stream.synchronize();
  {
    ExternalEvent work;
    work.wait(*other);  // so that the stream has to wait for it
    const FullQueue full(stream);
    EXPECT_EQ(error_of([&] { free(address); }), "nothing");
    EXPECT_EQ(error_of([&] { free(recorded); }), "nothing");
    work.signal();
  }
  EXPECT_PRED2(contains, failure(stream), "memory past the end of a block was written");
  other->synchronize();
  void* const again = allocate(1000, stream);
  EXPECT_EQ(again, address);
  free(again);
}

TEST_F(DebuggerTest, ABlockMayBeFreedAfterItsStreamWasDestroyed) {
  Stream& destroyed = create_stream(0);
  void* const address = allocate(1000, destroyed);
  void* const recorded = allocate(1000, destroyed);
  checks::record_stream(heap, recorded, stream);
  write(static_cast<std::byte*>(address) + 1000, destroyed);
  Blocker blocker(stream);
  destroy_stream(destroyed);
  EXPECT_EQ(error_of([&] { free(address); }), "nothing");
  EXPECT_EQ(error_of([&] { free(recorded); }), "nothing");
  EXPECT_PRED2(begins_with, error_of([&] { free(recorded); }), "openreg: invalid device pointer");
  blocker.open();
  EXPECT_PRED2(contains, failure(destroyed), "memory past the end of a block was written");
}

TEST_F(DebuggerTest, ACommandWithFreedMemoryIsRefused) {
  void* const address = allocate(1000, stream, "the owner");
  free(address, "the end");
  const std::string error = error_of([&] { use(address, stream); });
  EXPECT_PRED2(contains, error, "test_nothing was called with memory that has been freed");
  EXPECT_PRED2(contains, error, "the end");
}

TEST_F(DebuggerTest, WhatAPoisonedStreamSkippedIsNoError) {
  void* const before = allocate(1000, stream);
  stream.synchronize();
  enqueue(stream, [] { throw std::runtime_error("on purpose"); });
  void* const after = allocate(1000, stream);
  free(before);
  EXPECT_PRED2(contains, failure(stream), "test_function");
  EXPECT_EQ(error_of([] { Debugger::get()->host_waited(0); }), "nothing");
  free(after);
  free(allocate(1000, stream));
}

TEST_F(DebuggerTest, MemoryThatWentBackToTheDeviceIsNoError) {
  for (int round = 0; round < 3; ++round) {
    void* const small = allocate(1000, stream);
    void* const large = allocate(std::size_t{9} << 20, stream);
    free(large);
    if (round == 1) heap.empty_cache();
    free(small);
    heap.empty_cache();
    EXPECT_EQ(failure(stream), "nothing");
  }
}

// The returned pieces now belong to another stream's segment, in the middle of freed memory.
TEST_F(DebuggerTest, AWriteToFreedMemoryInFrontOfASegmentIsFound) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  struct Hole {
    OwnStream stream;
    std::byte* begin = nullptr;
    void* before = nullptr;
    void* behind = nullptr;
  };
  std::vector<std::unique_ptr<Hole>> holes;
  Hole* found = nullptr;
  // Segments lie apart as long as there is room for that.
  while (found == nullptr && holes.size() < 64) {
    auto hole = std::make_unique<Hole>();
    hole->before = allocate(5 * kMiB / 2, *hole->stream);
    hole->begin = static_cast<std::byte*>(allocate(8 * kMiB, *hole->stream, "the first owner"));
    hole->behind = allocate(5 * kMiB / 2, *hole->stream);
    for (const auto& each : holes) {
      if (hole->before > each->begin && hole->before < each->begin + 8 * kMiB) found = each.get();
    }
    free(hole->begin);
    heap.empty_cache();
    EXPECT_EQ(failure(*hole->stream), "nothing");
    holes.push_back(std::move(hole));
  }
  ASSERT_NE(found, nullptr) << "no segment lies where another one had memory";
  write(found->begin + 1000, *found->stream);
  void* const again = allocate(5 * kMiB / 4, *found->stream);
  EXPECT_EQ(again, found->begin);
  const std::string error = failure(*found->stream);
  EXPECT_PRED2(contains, error, "use after free: freed memory was written: 8388608 bytes");
  EXPECT_PRED2(contains, error, "the first owner");
  free(again);
  for (const auto& hole : holes) {
    free(hole->before);
    free(hole->behind);
    EXPECT_EQ(failure(*hole->stream), "nothing");
  }
}

TEST_F(DebuggerTest, FreeingTwiceAndForeignPointersAreRefused) {
  void* const address = allocate(1000, stream);
  free(address);
  EXPECT_PRED2(contains, error_of([&] { free(address); }), "invalid device pointer");
  int foreign = 0;
  EXPECT_PRED2(contains, error_of([&] { free(&foreign); }), "invalid device pointer");
}

TEST_F(DebuggerTest, BlocksThatAreHeldAreLeaksUnlessForgotten) {
  EXPECT_EQ(Debugger::get()->describe_leaks(), "");
  void* const kept = allocate(123, stream, "who kept it");
  void* const known = allocate(456, stream, "who may keep it");
  Debugger::get()->abandoned(known);
  const std::string leaks = Debugger::get()->describe_leaks();
  EXPECT_PRED2(contains, leaks, "1 block of device memory was not freed");
  EXPECT_PRED2(contains, leaks, "123 bytes");
  EXPECT_PRED2(contains, leaks, "who kept it");
  EXPECT_FALSE(contains(leaks, "456 bytes")) << leaks;
  free(kept);
  EXPECT_EQ(Debugger::get()->describe_leaks(), "");
  heap.free(static_cast<std::byte*>(known) - kBlockBytes);
}

TEST_F(DebuggerTest, SizesNearTheLargestNumberAreOutOfMemory) {
  EXPECT_EQ(allocate(SIZE_MAX, stream), nullptr);
  EXPECT_EQ(allocate(SIZE_MAX - 600, stream), nullptr);
  EXPECT_EQ(Debugger::get()->describe_leaks(), "");
}

}  // namespace
}  // namespace openreg::memory
