// Heap: private pools.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "base/error.h"
#include "heap_checks.h"
#include "memory/heap.h"

namespace openreg::memory {
namespace {

using namespace testing;

class HeapPoolsTest : public HeapTest {
 protected:
  static constexpr PoolId kFirst{1, 0};
  static constexpr PoolId kSecond{0, 2};

  int route_all(PoolId pool) {
    return heap.add_route(pool, [](const Stream&) { return true; });
  }
  PoolId pool_of(void* address) {
    for (const auto& segment : heap.segments()) {
      const auto offset = reinterpret_cast<std::uintptr_t>(address) - segment.address;
      if (offset < segment.bytes) return segment.pool;
    }
    ADD_FAILURE() << "no segment has this address";
    return {};
  }
  std::int64_t private_bytes(PoolId pool) {
    return heap.reserved_by_private_pools()[pool].current();
  }
};

TEST_F(HeapPoolsTest, MemoryIsOfThePoolThatARouteLeadsTo) {
  void* before = allocate(512);
  const int route = route_all(kFirst);
  void* inside = allocate(512);
  heap.remove_route(route);
  void* after = allocate(512);
  EXPECT_EQ(pool_of(before), PoolId{});
  EXPECT_EQ(pool_of(inside), kFirst);
  EXPECT_EQ(after, behind(before, 512));
  EXPECT_EQ(heap.segments(&kFirst).size(), 1U);
  EXPECT_TRUE(heap.segments(&kSecond).empty());
}

TEST_F(HeapPoolsTest, PoolsDoNotServeEachOther) {
  heap.free(allocate(4 * kMiB));
  const int route = route_all(kFirst);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  heap.free(allocate(4 * kMiB));
  const int inner = route_all(kSecond);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  heap.remove_route(inner);
  EXPECT_NE(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  heap.remove_route(route);
  EXPECT_NE(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
}

TEST_F(HeapPoolsTest, ABlockGoesBackToItsOwnPoolWheneverItIsFreed) {
  heap.add_use(kFirst);
  const int route = route_all(kFirst);
  void* block = allocate(4 * kMiB);
  heap.remove_route(route);
  heap.free(block);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  route_all(kFirst);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), block);
}

TEST_F(HeapPoolsTest, TheNewestRouteThatAcceptsCounts) {
  const auto only = [](int number) {
    return [number](const Stream& asked) { return &asked == &stream(number); };
  };
  heap.add_route(kFirst, only(1));
  EXPECT_EQ(pool_of(allocate(512, 1)), kFirst);
  EXPECT_EQ(pool_of(allocate(512, 0)), PoolId{});
  route_all(kFirst);
  const int newest = heap.add_route(kSecond, only(1));
  EXPECT_EQ(pool_of(allocate(512, 1)), kSecond);
  EXPECT_EQ(pool_of(allocate(512, 0)), kFirst);
  heap.remove_route(newest);
  EXPECT_EQ(pool_of(allocate(512, 1)), kFirst);
}

TEST_F(HeapPoolsTest, RoutesEndInAnyOrder) {
  const int outer = route_all(kFirst);
  route_all(kSecond);
  heap.remove_route(outer);
  EXPECT_EQ(pool_of(allocate(512)), kSecond);
  EXPECT_EQ(heap.uses(kFirst), 0);
}

TEST_F(HeapPoolsTest, ARouteIsAUseOfItsPool) {
  EXPECT_EQ(heap.uses(kFirst), 0);
  const int route = route_all(kFirst);
  EXPECT_EQ(heap.uses(kFirst), 1);
  heap.add_use(kFirst);
  EXPECT_EQ(heap.uses(kFirst), 2);
  heap.remove_route(route);
  EXPECT_EQ(heap.uses(kFirst), 1);
  heap.remove_use(kFirst);
  EXPECT_EQ(heap.uses(kFirst), 0);
}

TEST_F(HeapPoolsTest, APoolInUseKeepsItsMemory) {
  const int route = route_all(kFirst);
  heap.free(allocate(4 * kMiB));
  EXPECT_TRUE(heap.detach_unused().empty());
  EXPECT_TRUE(heap.detach_unused(kFirst).empty());
  heap.remove_route(route);
  heap.release(heap.detach_unused());
  EXPECT_EQ(backing.mapped(), 0U);
}

TEST_F(HeapPoolsTest, WhereAPoolIsNamedOnlyItsMemoryGoesBack) {
  heap.free(allocate(2 * kMiB));
  for (const auto& pool : {kFirst, kSecond}) {
    const int route = route_all(pool);
    heap.free(allocate(4 * kMiB));
    heap.remove_route(route);
  }
  heap.release(heap.detach_unused(kSecond));
  EXPECT_EQ(backing.unmaps, Sizes{4 * kMiB});
  EXPECT_TRUE(heap.segments(&kSecond).empty());
  EXPECT_EQ(heap.segments(&kFirst).size(), 1U);
}

TEST_F(HeapPoolsTest, AHeldBlockOutlivesTheUseOfItsPool) {
  const int route = route_all(kFirst);
  void* block = allocate(4 * kMiB);
  heap.remove_route(route);
  heap.release(heap.detach_unused());
  EXPECT_EQ(pool_of(block), kFirst);
  heap.free(block);
  heap.release(heap.detach_unused(kFirst));
  EXPECT_EQ(backing.mapped(), 0U);
}

TEST_F(HeapPoolsTest, APoolThatWasGivenUpServesAgainWithTheMemoryThatItStillHas) {
  int route = route_all(kFirst);
  void* block = allocate(4 * kMiB);
  heap.free(block);
  heap.remove_route(route);
  route = route_all(kFirst);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), block);
}

TEST_F(HeapPoolsTest, APoolThatIsUsedAgainWhileItsMemoryIsOnItsWayLives) {
  int route = route_all(kFirst);
  heap.free(allocate(4 * kMiB));
  heap.remove_route(route);
  const auto pieces = heap.detach_unused();
  route = route_all(kFirst);
  heap.release(pieces);
  EXPECT_EQ(heap.uses(kFirst), 1);
  EXPECT_EQ(pool_of(allocate(512)), kFirst);
}

TEST_F(HeapPoolsTest, BytesOfEachPrivatePoolAreCounted) {
  allocate(8 * kMiB);
  const int route = route_all(kFirst);
  void* small = allocate(512);
  void* large = allocate(4 * kMiB);
  allocate(2 * kMiB);  // extends
  EXPECT_EQ(private_bytes(kFirst), signed_bytes(8 * kMiB));
  EXPECT_EQ(heap.reserved_by_private_pools()[kFirst].of(SizeClass::kSmall).current,
            signed_bytes(2 * kMiB));
  EXPECT_EQ(heap.reserved_by_private_pools().count(PoolId{}), 0U);
  heap.remove_route(route);
  heap.free(small);
  heap.free(large);
  heap.release(heap.detach_unused());
  EXPECT_EQ(private_bytes(kFirst), signed_bytes(2 * kMiB));
  EXPECT_EQ(heap.reserved_by_private_pools()[kFirst].all().peak, signed_bytes(8 * kMiB));
}

TEST_F(HeapPoolsTest, APoolKeptForTheLastResortServesOnlyThen) {
  const int route = route_all(kFirst);
  void* block = allocate(4 * kMiB);
  heap.free(block);
  heap.add_use(kFirst);
  heap.remove_route(route);
  EXPECT_EQ(heap.allocate_last_resort(4 * kMiB, stream(0)), nullptr);
  heap.set_use_on_oom(kFirst, true);
  EXPECT_EQ(heap.allocate_cached(4 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_last_resort(4 * kMiB, stream(1)), nullptr);  // another stream's
  EXPECT_EQ(heap.allocate_last_resort(8 * kMiB, stream(0)), nullptr);
  EXPECT_EQ(heap.allocate_last_resort(4 * kMiB, stream(0)), block);
  heap.free(block);
  heap.set_use_on_oom(kFirst, false);
  EXPECT_EQ(heap.allocate_last_resort(4 * kMiB, stream(0)), nullptr);
}

TEST_F(HeapPoolsTest, InAPoolWithoutSplitsABlockTakesAWholeSegment) {
  route_all(kFirst);
  heap.set_no_split(kFirst, true);
  void* a = allocate(512);
  void* b = allocate(512);
  EXPECT_EQ(backing.maps, (Sizes{2 * kMiB, 2 * kMiB}));
  EXPECT_TRUE(backing.extensions.empty());
  EXPECT_EQ(statistics().allocated_bytes.current(), signed_bytes(4 * kMiB));
  EXPECT_EQ(statistics().inactive_split.all(), Stat{});
  heap.free(b);
  heap.free(a);
  EXPECT_EQ(heap.allocate_cached(1024, stream(0)), a);  // the last to be freed
}

TEST_F(HeapPoolsTest, WrongUsesAreRefusedAndChangeNothing) {
  const std::string unknown = "openreg: there is no such memory pool (got (1, 0))";
  EXPECT_EQ(error_of([&] { heap.remove_use(kFirst); }), unknown);
  EXPECT_EQ(error_of([&] { heap.set_use_on_oom(kFirst, true); }), unknown);
  EXPECT_EQ(error_of([&] { heap.set_no_split(kFirst, true); }), unknown);
  EXPECT_EQ(error_of([&] { heap.add_use({}); }),
            "openreg: (0, 0) is the default memory pool, not a private one");
  EXPECT_THROW(route_all({}), Error);
  EXPECT_EQ(error_of([&] { heap.remove_route(1); }),
            "openreg: this use of a memory pool has already ended");
  EXPECT_EQ(heap.uses(kFirst), 0);
  EXPECT_EQ(pool_of(allocate(512)), PoolId{});
}

TEST_F(HeapPoolsTest, AUseEndsOnce) {
  const int route = route_all(kFirst);
  allocate(512);
  heap.remove_route(route);
  EXPECT_THROW(heap.remove_route(route), Error);
  EXPECT_EQ(error_of([&] { heap.remove_use(kFirst); }),
            "openreg: a memory pool was released more often than it was used");
  EXPECT_EQ(heap.uses(kFirst), 0);
}

// The route would lead to a pool that is gone.
TEST_F(HeapPoolsTest, TheUseOfARouteEndsOnlyWithTheRoute) {
  const int route = route_all(kFirst);
  EXPECT_EQ(error_of([&] { heap.remove_use(kFirst); }),
            "openreg: a memory pool was released more often than it was used");
  EXPECT_EQ(heap.uses(kFirst), 1);
  EXPECT_EQ(pool_of(allocate(512)), kFirst);
  heap.remove_route(route);
  EXPECT_EQ(heap.uses(kFirst), 0);
}

}  // namespace
}  // namespace openreg::memory
