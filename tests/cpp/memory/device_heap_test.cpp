#include "memory/device_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "address_space/address_space.h"
#include "base/error.h"
#include "memory/race_detector.h"
#include "runtime/callbacks.h"
#include "runtime/command_error.h"
#include "runtime/event.h"
#include "seed.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

constexpr std::size_t kMiB = std::size_t{1} << 20;  // main() makes a device of 64

class DeviceHeapTest : public ::testing::Test {
 protected:
  // Each test frees what it allocates, so all memory can be returned.
  void TearDown() override {
    heap.empty_cache();
    EXPECT_EQ(AddressSpace::get().mapped(0), mapped_before_);
    EXPECT_EQ(statistics().active.current(), 0);
    EXPECT_EQ(statistics().reserved_bytes.current(), 0);
  }

  void* allocate(std::size_t bytes, Stream& stream) { return heap.allocate(bytes, stream).address; }
  void* allocate_cached(std::size_t bytes, Stream& stream) {
    return heap.locked([&](Heap& inner) { return inner.allocate_cached(bytes, stream); });
  }
  Statistics statistics() {
    return heap.locked([](Heap& inner) { return inner.statistics(); });
  }
  std::size_t reserved() { return static_cast<std::size_t>(statistics().reserved_bytes.current()); }
  void set_garbage_collection_threshold(double threshold) {
    heap.locked([&](Heap& inner) {
      Policy policy;
      policy.garbage_collection_threshold = threshold;
      inner.set_policy(policy);
    });
  }
  static void fail(Stream& stream) {
    enqueue(stream, [] { throw std::runtime_error("broken"); });
  }

  DeviceHeap heap{0};
  OwnStream first;
  OwnStream second;

 private:
  const std::size_t mapped_before_ = AddressSpace::get().mapped(0);
};

TEST_F(DeviceHeapTest, CallersGetTheNumbersThatProfilersShow) {
  const auto a = heap.allocate(1000, *first);
  EXPECT_EQ(AddressSpace::get().device_of(a.address), 0);
  EXPECT_EQ(a.usage.bytes, 1024);
  EXPECT_EQ(a.usage.allocated, 1024);
  EXPECT_EQ(a.usage.reserved, signed_bytes(2 * kMiB));
  const auto b = heap.allocate(3 * kMiB, *first);
  EXPECT_EQ(b.usage.bytes, signed_bytes(3 * kMiB));
  EXPECT_EQ(b.usage.allocated, signed_bytes(3 * kMiB + 1024));
  EXPECT_EQ(b.usage.reserved, signed_bytes(6 * kMiB));
  const auto freed = heap.free(a.address);
  EXPECT_EQ(freed.bytes, -1024);
  EXPECT_EQ(freed.allocated, signed_bytes(3 * kMiB));
  EXPECT_EQ(freed.reserved, signed_bytes(6 * kMiB));
  heap.free(b.address);
}

TEST_F(DeviceHeapTest, DevicesHaveHeapsOfTheirOwn) {
  void* block = device_heap(1).allocate(1000, default_stream(1)).address;
  EXPECT_EQ(AddressSpace::get().device_of(block), 1);
  EXPECT_THROW(heap.free(block), Error);
  EXPECT_THROW(device_heap(0).free(block), Error);
  EXPECT_EQ(&device_heap(1), &device_heap(1));
  device_heap(1).free(block);
  device_heap(1).empty_cache();
  EXPECT_EQ(AddressSpace::get().mapped(1), 0U);
}

// --- Stream order ---

TEST_F(DeviceHeapTest, FreedMemoryIsReusedWithoutWaitingForItsOwnStream) {
  const Blocker blocker(*first);
  void* block = allocate(1000, *first);
  enqueue_nothing(*first);
  heap.free(block);
  EXPECT_EQ(allocate(1000, *first), block);
  heap.free(block);
}

TEST_F(DeviceHeapTest, ABlockThatAnotherStreamUsesIsNotHandedOutBeforeThatIsDone) {
  void* block = allocate(1000, *first);
  Blocker blocker(*second);
  heap.record_stream(block, *second);
  heap.free(block);
  void* other = allocate(1000, *first);
  EXPECT_NE(other, block);
  EXPECT_EQ(statistics().active.current(), 2);
  blocker.open();
  second->synchronize();
  EXPECT_EQ(allocate(1000, *first), block);
  heap.free(block);
  heap.free(other);
}

// The caller holds a lock that commands may need.
TEST_F(DeviceHeapTest, AFreeDoesNotWaitForRoomInTheQueueOfAStreamThatUsesTheBlock) {
  void* block = allocate(1000, *first);
  const QueueLimit limit(*second, 4);
  Blocker blocker(*second);
  for (int i = 0; i < 3; ++i) enqueue_nothing(*second);
  heap.record_stream(block, *second);
  auto freed = std::async(std::launch::async, [&] { heap.free(block); });
  EXPECT_EQ(freed.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  blocker.open();
  freed.get();
}

TEST_F(DeviceHeapTest, ABlockCanBeFreedAfterAStreamThatUsedItIsGone) {
  void* block = allocate(1000, *first);
  {
    const OwnStream gone;
    heap.record_stream(block, *gone);
  }
  heap.free(block);
  heap.empty_cache();
  EXPECT_EQ(statistics().active.current(), 0);
}

// --- Out of memory ---

TEST_F(DeviceHeapTest, TheCacheOfAnotherStreamMakesRoom) {
  heap.free(allocate(60 * kMiB, *first));
  void* block = allocate(40 * kMiB, *second);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(statistics().retries, 1);
  EXPECT_EQ(statistics().out_of_memory, 0);
  EXPECT_EQ(reserved(), 40 * kMiB);
  heap.free(block);
}

TEST_F(DeviceHeapTest, TheCacheOfSmallBlocksMakesRoomForALargeOne) {
  std::vector<void*> blocks;
  for (int i = 0; i < 60; ++i) blocks.push_back(allocate(kMiB, *first));
  for (void* small : blocks) heap.free(small);
  void* block = allocate(40 * kMiB, *first);
  ASSERT_NE(block, nullptr);
  heap.free(block);
}

TEST_F(DeviceHeapTest, PiecesOfASegmentThatIsInUseMakeRoom) {
  std::array<void*, 3> blocks{};
  for (auto& block : blocks) block = allocate(20 * kMiB, *first);
  heap.free(blocks[1]);
  void* other = allocate(20 * kMiB, *second);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(reserved(), 60 * kMiB);
  for (void* block : {blocks[0], blocks[2], other}) heap.free(block);
}

// Keeps a block, and frees it when the heap needs memory.
struct Keeper {
  static bool free_kept(int) {
    if (kept == nullptr) return false;
    of->free(std::exchange(kept, nullptr));
    return true;
  }
  static inline DeviceHeap* of = nullptr;
  static inline void* kept = nullptr;
};

TEST_F(DeviceHeapTest, MemoryThatACallbackFreesIsUsedBeforeTheDevicesIs) {
  OwnStream stream(0);
  Keeper::of = &heap;
  Keeper::kept = allocate(8 * kMiB, *stream);
  void* const address = Keeper::kept;
  set_free_memory_callback(&Keeper::free_kept);
  const auto before = reserved();
  void* const same = allocate(8 * kMiB, *stream);
  EXPECT_EQ(same, address);
  EXPECT_EQ(reserved(), before);
  void* const other = allocate(8 * kMiB, *stream);  // it has nothing more to free
  EXPECT_EQ(reserved(), before + 8 * kMiB);
  set_free_memory_callback(nullptr);
  heap.free(same);
  heap.free(other);
}

TEST_F(DeviceHeapTest, BlocksThatStreamsStillUseAreWaitedFor) {
  void* block = allocate(60 * kMiB, *first);
  std::atomic<bool> used = false;
  Blocker blocker(*second);
  enqueue(*second, [&] { used = true; });
  heap.record_stream(block, *second);
  heap.free(block);
  auto other = std::async(std::launch::async, [&] {
    void* result = allocate(40 * kMiB, *first);
    EXPECT_TRUE(used);
    return result;
  });
  blocker.open();
  void* result = other.get();
  ASSERT_NE(result, nullptr);
  heap.free(result);
}

TEST_F(DeviceHeapTest, BlocksThatStreamsOfAnotherDeviceStillUseAreWaitedFor) {
  OwnStream elsewhere(1);
  void* const block = allocate(40 * kMiB, *first);
  auto blocker = std::make_unique<Blocker>(*elsewhere);
  heap.record_stream(block, *elsewhere);
  heap.free(block);
  auto opened = std::async(std::launch::async, [&] { blocker->open(); });
  void* const other = allocate(50 * kMiB, *second);
  EXPECT_NE(other, nullptr);
  opened.get();
  heap.free(other);
}

TEST_F(DeviceHeapTest, WhereNothingHelpsTheAnswerIsNoAddressAndNothingIsLost) {
  void* held = allocate(30 * kMiB, *first);
  heap.free(allocate(10 * kMiB, *second));
  const auto failed = heap.allocate(40 * kMiB, *first);
  EXPECT_EQ(failed.address, nullptr);
  EXPECT_EQ(failed.usage.bytes, signed_bytes(40 * kMiB));
  EXPECT_EQ(failed.usage.allocated, signed_bytes(30 * kMiB));
  EXPECT_EQ(failed.usage.reserved, signed_bytes(30 * kMiB));
  EXPECT_EQ(failed.free, 34 * kMiB);
  EXPECT_EQ(failed.limit, 64 * kMiB);
  EXPECT_EQ(statistics().retries, 1);
  EXPECT_EQ(statistics().out_of_memory, 1);
  EXPECT_EQ(statistics().allocation.all(), (Stat{1, 2, 2, 1}));
  heap.free(held);
  void* fits = allocate(40 * kMiB, *first);
  EXPECT_NE(fits, nullptr);
  heap.free(fits);
}

TEST_F(DeviceHeapTest, ARequestBeyondTheLimitGivesTheCacheBack) {
  heap.free(allocate(10 * kMiB, *first));
  EXPECT_EQ(allocate(65 * kMiB, *first), nullptr);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(statistics().retries, 1);
  EXPECT_EQ(statistics().out_of_memory, 1);
  EXPECT_EQ(statistics().synchronizations, 1);
}

TEST_F(DeviceHeapTest, AFractionOfTheDeviceIsTheLimit) {
  EXPECT_EQ(heap.fraction(), 1);
  heap.set_fraction(0.5);
  EXPECT_EQ(heap.fraction(), 0.5);
  EXPECT_EQ(allocate(33 * kMiB, *first), nullptr);
  void* half = allocate(32 * kMiB, *first);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(allocate(512, *second), nullptr);
  heap.set_fraction(1);
  void* more = allocate(512, *second);
  EXPECT_NE(more, nullptr);
  heap.free(half);
  heap.free(more);
}

class DetectedDeviceHeapTest : public DeviceHeapTest {
 protected:
  DetectedDeviceHeapTest() { RaceDetector::set_mode(RaceDetectionMode::kError); }
  ~DetectedDeviceHeapTest() override {
    synchronize_device(0);
    RaceDetector::set_mode(RaceDetectionMode::kOff);
  }
  static void write(Stream& stream, const void* memory) {
    const auto* const bytes = static_cast<const std::byte*>(memory);
    const MemoryUse use{
        .storage = bytes, .storage_bytes = kMiB, .footprint = {bytes, kMiB}, .writes = true};
    Launch launch{.stream = stream, .name = "test", .memory = {&use, 1}};
    checks::enqueue_checked(launch, [&] { enqueue_nothing(stream); });
  }
};

// Whether memory is short is chance.
TEST_F(DetectedDeviceHeapTest, AWaitForMemoryOrdersNoAccessOfTheProgram) {
  void* const used = allocate(kMiB, *first);
  write(*first, used);
  heap.free(allocate(60 * kMiB, *first));
  void* const large = allocate(40 * kMiB, *second);  // waits, and empties the cache
  ASSERT_EQ(statistics().retries, 1);
  heap.empty_cache();
  EXPECT_THROW(write(*second, used), RaceError);
  heap.free(large);
  heap.free(used);
}

TEST_F(DetectedDeviceHeapTest, MemoryThatWentBackToTheDeviceHasNoPast) {
  void* const used = allocate(40 * kMiB, *first);
  write(*first, used);
  heap.free(used);
  void* const again = allocate(40 * kMiB, *second);  // there is no room beside it
  ASSERT_EQ(again, used);
  EXPECT_NO_THROW(write(*second, again));
  heap.free(again);
}

TEST_F(DeviceHeapTest, APoolForTheLastResortServesWhenTheCacheIsGone) {
  const int route = heap.locked([](Heap& inner) {
    inner.add_use({1, 0});
    inner.set_use_on_oom({1, 0}, true);
    return inner.add_route({1, 0}, [](const Stream&) { return true; });
  });
  void* block = allocate(40 * kMiB, *first);
  heap.free(block);
  heap.locked([&](Heap& inner) { inner.remove_route(route); });
  EXPECT_EQ(allocate(40 * kMiB, *first), block);
  heap.free(block);
  heap.locked([](Heap& inner) { inner.remove_use({1, 0}); });
}

TEST_F(DeviceHeapTest, BlocksOfACheckpointAreHeldAgainWhenStreamsNoLongerUseThem) {
  const int route = heap.locked([](Heap& inner) {
    return inner.add_route({1, 0}, [](const Stream&) { return true; });
  });
  void* block = allocate(1000, *first);
  const auto checkpoint = heap.locked([](Heap& inner) { return inner.checkpoint({1, 0}); });
  std::atomic<bool> used = false;
  Blocker blocker(*second);
  enqueue(*second, [&] { used = true; });
  heap.record_stream(block, *second);
  heap.free(block);
  auto held = std::async(std::launch::async, [&] {
    heap.restore_checkpoint(checkpoint);
    EXPECT_TRUE(used);
  });
  blocker.open();
  held.get();
  EXPECT_EQ(statistics().allocation.current(), 1);
  heap.free(block);
  heap.locked([&](Heap& inner) { inner.remove_route(route); });
}

TEST_F(DeviceHeapTest, OversizeBlocksMakeRoomBeforeTheRestOfTheCache) {
  heap.locked([](Heap& inner) {
    Policy policy;
    policy.max_split_bytes = 20 * kMiB;
    policy.max_non_split_rounding = 2 * kMiB;
    inner.set_policy(policy);
  });
  heap.free(allocate(10 * kMiB, *first));
  heap.free(allocate(50 * kMiB, *first));
  void* block = allocate(40 * kMiB, *first);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(statistics().retries, 0);
  EXPECT_EQ(reserved(), 50 * kMiB);
  heap.free(block);
}

TEST_F(DeviceHeapTest, WhatIsOldGoesBackWhereMemoryIsAskedForAboveTheThreshold) {
  set_garbage_collection_threshold(0.5);
  heap.free(allocate(30 * kMiB, *first));
  heap.free(allocate(10 * kMiB, *second));
  void* block = allocate(20 * kMiB, *second);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(allocate_cached(30 * kMiB, *first), nullptr);
  EXPECT_EQ(statistics().retries, 0);
  heap.free(block);
}

// --- Failures on the device ---

TEST_F(DeviceHeapTest, EmptyCacheLeavesWhatFailedToThoseWhoWaitForTheWork) {
  const OwnStream elsewhere(1);
  void* block = allocate(4 * kMiB, *first);
  heap.record_stream(block, *elsewhere);
  fail(*second);
  fail(*elsewhere);
  heap.free(block);
  heap.empty_cache();
  EXPECT_EQ(reserved(), 0U);
  EXPECT_THROW(second->synchronize(), CommandError);
  EXPECT_THROW(elsewhere->synchronize(), CommandError);
}

TEST_F(DeviceHeapTest, AnAllocationThatWaitsLeavesWhatFailedToThoseWhoWaitForTheWork) {
  const OwnStream third;
  void* block = allocate(40 * kMiB, *first);
  heap.free(block);
  fail(*second);
  block = allocate(50 * kMiB, *third);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(statistics().retries, 1);
  heap.free(block);
  EXPECT_THROW(second->synchronize(), CommandError);
}

// Here the wait is interrupted while memory is being returned to the device.
TEST_F(DeviceHeapTest, MemoryOnItsWayBackReturnsToTheCacheWhereTheWaitIsInterrupted) {
  struct Interrupted {};
  static std::atomic<bool> interrupt;
  install_callbacks({.check_interrupt = [] {
    if (interrupt.exchange(false)) throw Interrupted();
  }});
  set_garbage_collection_threshold(0.5);
  void* block = allocate(40 * kMiB, *first);
  heap.free(block);
  ExternalEvent never_soon;
  never_soon.wait(*second);
  interrupt = true;
  EXPECT_THROW(allocate(10 * kMiB, *second), Interrupted);
  never_soon.signal();
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(allocate_cached(40 * kMiB, *first), block);
  heap.free(block);
  void* next = allocate(10 * kMiB, *second);
  EXPECT_NE(next, nullptr);
  heap.free(next);
}

TEST_F(DeviceHeapTest, ARequestFailsOnlyWhereTheDeviceHasLessFreeMemory) {
  const unsigned seed = testing::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::array<Stream*, 3> streams{&*first, &*second, &default_stream(0)};
  std::vector<void*> blocks;
  const auto free_one = [&] {
    std::swap(blocks[random() % blocks.size()], blocks.back());
    if (random() % 2 == 0) {
      enqueue_nothing(*second);
      heap.record_stream(blocks.back(), *second);
    }
    heap.free(blocks.back());
    blocks.pop_back();
  };
  int failures = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = 1 + (random() & ((std::size_t{1} << (1 + random() % 24)) - 1));
    if (void* const block = allocate(bytes, *streams[random() % streams.size()])) {
      blocks.push_back(block);
      if (blocks.size() > 40) free_one();
      continue;
    }
    ++failures;
    const auto& space = AddressSpace::get();
    ASSERT_LT(space.capacity() - space.mapped(0), round_up(bytes, kSegmentBytes));
    while (blocks.size() > 10) free_one();
  }
  EXPECT_GT(failures, 0);
  while (!blocks.empty()) free_one();
}

// --- Threads ---

// A program that fills its blocks on the device, lets another stream check their contents, and
// frees them at once. If memory is reused too early, the check fails.
class Tenant {
 public:
  Tenant(DeviceHeap& heap, std::vector<Stream*> streams, std::size_t largest, unsigned seed)
      : heap_(heap), streams_(std::move(streams)), largest_(largest), random_(seed) {}

  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      if (blocks_.size() > 12 || (!blocks_.empty() && random_() % 2 == 0)) {
        free_one();
      } else {
        allocate_one();
      }
    }
    while (!blocks_.empty()) free_one();
  }
  static int damaged() { return g_damaged; }

 private:
  struct Block {
    void* address;
    std::size_t bytes;
    std::byte value;
    Stream* stream;
  };

  void allocate_one() {
    auto& stream = any_stream();
    const std::size_t bytes = 1 + random_() % (random_() % 2 == 0 ? 4096 : largest_);
    void* const address = heap_.allocate(bytes, stream).address;
    if (address == nullptr) {  // memory is short: let others continue
      if (!blocks_.empty()) free_one();
      return;
    }
    const Block block{address, bytes, static_cast<std::byte>(random_()), &stream};
    enqueue(stream, [block] { std::ranges::fill(memory(block), block.value); });
    blocks_.push_back(block);
  }
  void free_one() {
    std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
    const Block block = blocks_.back();
    blocks_.pop_back();
    auto& user = any_stream();
    Event filled;
    filled.record(*block.stream);
    filled.wait(user);
    enqueue(user, [block] {
      g_damaged += !std::ranges::all_of(memory(block), [&](auto b) { return b == block.value; });
    });
    heap_.record_stream(block.address, user);
    heap_.free(block.address);
  }
  Stream& any_stream() { return *streams_[random_() % streams_.size()]; }
  static std::span<std::byte> memory(const Block& block) {
    return {static_cast<std::byte*>(AddressSpace::get().aperture(block.address)), block.bytes};
  }

  static inline std::atomic<int> g_damaged{0};
  DeviceHeap& heap_;
  std::vector<Stream*> streams_;
  std::size_t largest_;
  std::mt19937 random_;
  std::vector<Block> blocks_;
};

class DeviceHeapThreadsTest : public DeviceHeapTest {
 protected:
  static constexpr std::size_t kThreads = 8;

  // Eight tenants, each with its own stream and two that all of them share.
  void run(std::size_t largest, int rounds) {
    const unsigned seed = testing::seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const OwnStream own;
        Tenant(heap, {&*own, &*first, &*second}, largest, seed + i).run(rounds);
        own->synchronize();
      });
    }
    for (auto& thread : threads) thread.join();
    synchronize_device(0);
    EXPECT_EQ(Tenant::damaged(), 0);
    EXPECT_EQ(statistics().allocation.current(), 0);
    EXPECT_EQ(statistics().allocated_bytes.current(), 0);
    EXPECT_EQ(statistics().requested_bytes.current(), 0);
  }
};

TEST_F(DeviceHeapThreadsTest, MemoryInUseIsNotAllocatedAgain) { run(64 << 10, 400); }

TEST_F(DeviceHeapThreadsTest, MemoryInUseIsNotAllocatedAgainEvenIfItIsShort) {
  heap.set_fraction(0.5);
  run(4 * kMiB, 60);
  EXPECT_GT(statistics().retries, 0);
}

// Together they use at most 48 of the 64 MiB, and cache what they can.
TEST_F(DeviceHeapThreadsTest, NoRequestFailsWhereWhatIsInUseLeavesRoom) {
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, seed = testing::seed() + i] {
      std::mt19937 random(seed);
      const OwnStream own;
      const std::array<Stream*, 3> streams{&*own, &*first, &*second};
      for (int round = 0; round < 300; ++round) {
        std::array<void*, 3> blocks{};
        for (auto& block : blocks) {
          block = allocate(2 * kMiB, *streams[random() % streams.size()]);
          if (block == nullptr) {
            ++failures;
            continue;
          }
          auto& user = *streams[random() % streams.size()];
          enqueue_nothing(user);
          heap.record_stream(block, user);
        }
        for (void* block : blocks) {
          if (block != nullptr) heap.free(block);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(statistics().out_of_memory, 0);
  EXPECT_GT(statistics().retries, 0);
}

TEST_F(DeviceHeapThreadsTest, ARequestThatHasNoRoomFailsWhileOthersAllocateAndFree) {
  void* const held = allocate(20 * kMiB, *first);
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (std::size_t i = 0; i < kThreads; ++i) {
    others.emplace_back([&] {
      const OwnStream own;
      while (!done) {
        void* const block = allocate(2 * kMiB, *own);
        enqueue_nothing(*second);
        heap.record_stream(block, *second);
        heap.free(block);
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(allocate(46 * kMiB, *first), nullptr);
  done = true;
  for (auto& thread : others) thread.join();
  EXPECT_EQ(statistics().out_of_memory, 20);
  heap.free(held);
}

TEST_F(DeviceHeapThreadsTest, TheCacheCanBeEmptiedWhileOthersAllocate) {
  std::atomic<bool> done = false;
  std::thread emptying([&] {
    while (!done) heap.empty_cache();
  });
  run(3 * kMiB, 60);
  done = true;
  emptying.join();
  EXPECT_GT(statistics().device_unmaps, 0);
}

}  // namespace
}  // namespace openreg::memory
