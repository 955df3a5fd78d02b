#include "backend/graph.h"

#include <ATen/accelerator/Graph.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/host_allocator.h"
#include "backend/stream.h"
#include "memory/device_heap.h"

namespace openreg::backend {
namespace {

/// The numbers that captured kernels have drawn.
std::vector<PhiloxState> g_drawn;

void draw(openreg::Stream& stream, const std::optional<at::Generator>& generator = {}) {
  static const Kernel kernel("test_draw", [](const Kernel&, std::span<const std::byte> arguments) {
    PhiloxState carried{};
    std::memcpy(&carried, arguments.data(), sizeof carried);
    g_drawn.push_back(philox_of_command(carried));
  });
  const auto philox = reserve_philox(generator, -1, 8);
  stream.enqueue(kernel, std::as_bytes(std::span(&philox, 1)));
}

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    g_drawn.clear();
    before_ = &exchange_current_stream(stream);
  }
  void TearDown() override { exchange_current_stream(*before_); }

  template <class F>
  void capture(F&& f, c10::MempoolId_t pool = {0, 0}) {
    graph.capture_begin(pool);
    f();
    graph.capture_end();
  }

  openreg::Stream& stream = stream_from_pool(0, Priority::kNormal);
  CapturableGraph graph;

 private:
  openreg::Stream* before_ = nullptr;
};

template <class E = c10::Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what_without_backtrace();
  }
  return "nothing";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(GraphTest, PyTorchFindsItByTheNameOfTheDevice) {
  EXPECT_TRUE(at::has_graph_impl(kDeviceType));
  at::accelerator::Graph accelerator_graph;
  accelerator_graph.capture_begin();
  const auto& guard = *c10::impl::getDeviceGuardImpl(kDeviceType);
  EXPECT_TRUE(guard.isStreamCapturing(to_torch(stream)));
  draw(stream);
  accelerator_graph.capture_end();
  EXPECT_FALSE(guard.isStreamCapturing(to_torch(stream)));
  accelerator_graph.replay();
  stream.synchronize();
  EXPECT_EQ(g_drawn.size(), 1U);
}

TEST_F(GraphTest, EachRunDrawsTheNumbersThatEagerWouldDraw) {
  capture([&] {
    draw(stream);
    draw(stream);
  });
  auto generator = default_generator(0);
  generator.set_current_seed(7);
  for (int i = 0; i < 2; ++i) {
    draw(stream);
    draw(stream);
  }
  stream.synchronize();
  const auto eager = std::exchange(g_drawn, {});
  generator.set_current_seed(7);
  graph.replay();
  graph.replay();
  stream.synchronize();
  ASSERT_EQ(g_drawn.size(), eager.size());
  for (std::size_t i = 0; i < eager.size(); ++i) {
    EXPECT_EQ(g_drawn[i].seed, 7U);
    EXPECT_EQ(g_drawn[i].offset, eager[i].offset);
  }
  EXPECT_EQ(generator.get_offset(), 32U);
}

TEST_F(GraphTest, AGeneratorJoinsTheCaptureThatDrawsFromIt) {
  auto other = new_generator(0);
  auto registered = new_generator(0);
  graph.register_generator_state(registered);
  capture([&] {
    draw(stream, other);
    draw(stream, registered);
    draw(stream, other);
  });
  other.set_current_seed(8);
  registered.set_current_seed(9);
  graph.replay();
  stream.synchronize();
  ASSERT_EQ(g_drawn.size(), 3U);
  EXPECT_EQ(g_drawn[0].seed, 8U);
  EXPECT_EQ(g_drawn[1].seed, 9U);
  EXPECT_EQ(g_drawn[2].offset, g_drawn[0].offset + 8);
  EXPECT_EQ(other.get_offset(), 16U);
  EXPECT_EQ(registered.get_offset(), 8U);
  EXPECT_TRUE(
      mentions(error_of([&] { graph.register_generator_state(other); }), "before the capture"));
}

TEST_F(GraphTest, ThreadsMayJoinOneGeneratorToACaptureAtOnce) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 50; ++round) {
    g_drawn.clear();
    auto generator = new_generator(0);
    CapturableGraph captured;
    captured.capture_begin({0, 0}, at::GraphCaptureMode::Relaxed);
    std::barrier ready(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        exchange_current_stream(stream);
        ready.arrive_and_wait();
        draw(stream, generator);
      });
    }
    for (auto& thread : threads) thread.join();
    captured.capture_end();
    captured.replay();
    stream.synchronize();
    EXPECT_EQ(generator.get_offset(), 8U * kThreads);
    std::set<std::uint64_t> offsets;
    for (const auto& drawn : g_drawn) offsets.insert(drawn.offset);
    EXPECT_EQ(offsets, (std::set<std::uint64_t>{0, 8, 16, 24}));
  }
}

TEST_F(GraphTest, AStateThatIsReadInACaptureCanBeSetInIt) {
  auto generator = new_generator(0);
  generator.set_current_seed(7);
  const auto drawing = [&] {
    draw(stream, generator);
    const auto state = generator.get_state();
    draw(stream, generator);
    generator.set_state(state);
    draw(stream, generator);
  };
  drawing();
  stream.synchronize();
  const auto eager = std::exchange(g_drawn, {});
  const auto after = generator.get_offset();
  capture(drawing);
  generator.set_current_seed(7);
  graph.replay();
  stream.synchronize();
  ASSERT_EQ(g_drawn.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(g_drawn[i].offset, eager[i].offset);
  EXPECT_EQ(generator.get_offset(), after);
}

TEST_F(GraphTest, AGraphWhoseNumbersAreGivenBackReadsTheSeedNevertheless) {
  auto generator = new_generator(0);
  capture([&] {
    const auto state = generator.get_state();
    draw(stream, generator);
    generator.set_state(state);
  });
  generator.set_current_seed(11);
  generator.set_offset(40);
  graph.replay();
  stream.synchronize();
  ASSERT_EQ(g_drawn.size(), 1U);
  EXPECT_EQ(g_drawn[0].seed, 11U);
  EXPECT_EQ(g_drawn[0].offset, 40U);
  EXPECT_EQ(generator.get_offset(), 40U);
}

TEST_F(GraphTest, WhatARunWouldNotRepeatIsRefusedDuringTheCapture) {
  auto generator = default_generator(0);
  const auto seed = generator.current_seed();
  graph.capture_begin();
  const std::string sentence = "cannot be used while the current stream is captured";
  EXPECT_TRUE(mentions(error_of([&] { generator.get_offset(); }), sentence));
  EXPECT_TRUE(mentions(error_of([&] { generator.set_offset(4); }), sentence));
  EXPECT_TRUE(mentions(error_of([&] { generator.seed(); }), sentence));
  EXPECT_TRUE(mentions(error_of([&] { generator.clone(); }), sentence));
  EXPECT_TRUE(mentions(error_of([&] { new_generator(0); }), "cannot be created"));
  EXPECT_TRUE(mentions(error_of([&] { generator.set_current_seed(seed + 1); }),
                       "only if new seed is the same as the original seed"));
  EXPECT_EQ(error_of([&] { generator.set_current_seed(seed); }), "nothing");
  EXPECT_EQ(generator.current_seed(), seed);
  graph.capture_end();
}

TEST_F(GraphTest, CapturedMemoryComesFromThePoolAndStaysItsOwn) {
  void* captured = nullptr;
  capture([&] {
    captured = allocate_raw(4096, stream);
    deallocate_raw(captured);
    EXPECT_EQ(allocate_raw(4096, stream), captured);  // within the graph it is reused
    deallocate_raw(captured);
  });
  const auto pool = graph.pool();
  EXPECT_NE(pool.first, 0U);
  void* const eager = allocate_raw(4096, stream);
  EXPECT_NE(eager, captured);
  deallocate_raw(eager);
  auto& heap = memory::device_heap(0);
  const auto segments = [&] {
    return heap.locked([&](memory::Heap& of) { return of.segments(&pool).size(); });
  };
  heap.empty_cache();
  EXPECT_EQ(segments(), 1U);
  graph.reset();
  heap.empty_cache();
  EXPECT_EQ(segments(), 0U);
}

TEST_F(GraphTest, GraphsMayShareAPool) {
  void* first = nullptr;
  capture([&] {
    first = allocate_raw(4096, stream);
    deallocate_raw(first);
  });
  CapturableGraph second;
  second.capture_begin(graph.pool());
  void* const again = allocate_raw(4096, stream);
  deallocate_raw(again);
  second.capture_end();
  EXPECT_EQ(again, first);
  EXPECT_EQ(second.pool(), graph.pool());
}

TEST_F(GraphTest, PinnedMemoryOfACaptureIsTheGraphs) {
  void* captured = nullptr;
  capture([&] { captured = host_allocator().allocate(1 << 16).get(); });
  EXPECT_NE(host_allocator().allocate(1 << 16).get(), captured);
}

TEST_F(GraphTest, TheDefaultStreamIsNotCaptured) {
  exchange_current_stream(default_stream(0));
  EXPECT_TRUE(mentions(error_of([&] { graph.capture_begin(); }),
                       "graphs must be captured on a non-default stream"));
}

TEST_F(GraphTest, ASpoiltCaptureLeavesTheGraphEmptyAndTheStreamUsable) {
  graph.capture_begin();
  EXPECT_TRUE(mentions(
      error_of<c10::AcceleratorError>([&] { translate_errors([&] { stream.synchronize(); }); }),
      "operation not permitted when stream is capturing"));
  EXPECT_TRUE(mentions(error_of<c10::AcceleratorError>([&] { graph.capture_end(); }),
                       "operation failed due to a previous error during capture"));
  EXPECT_TRUE(mentions(error_of([&] { graph.replay(); }),
                       "replay() without a preceding successful capture"));
  draw(stream);
  stream.synchronize();
  EXPECT_EQ(g_drawn.size(), 1U);
  capture([&] { draw(stream); });
  graph.replay();
  stream.synchronize();
  EXPECT_EQ(g_drawn.size(), 2U);
}

TEST_F(GraphTest, ACaptureThatIsUnderWayGoesWithItsGraph) {
  {
    CapturableGraph abandoned;
    abandoned.capture_begin();
  }
  EXPECT_EQ(capture_of(stream), 0U);
  draw(stream);
  stream.synchronize();
  EXPECT_EQ(g_drawn.size(), 1U);
}

TEST_F(GraphTest, AGraphWhoseCaptureWasAbandonedLeavesLaterOnesOfTheStreamAlone) {
  CapturableGraph later;
  graph.capture_begin();
  abandon_captures(0);
  later.capture_begin();
  EXPECT_TRUE(
      mentions(error_of([&] { graph.capture_end(); }), "openreg: the capture was abandoned"));
  EXPECT_NE(capture_of(stream), 0U);
  graph.reset();
  later.capture_end();
  EXPECT_EQ(capture_of(stream), 0U);

  graph.capture_begin();
  abandon_captures(0);
  later.reset();
  later.capture_begin();
  graph.reset();
  EXPECT_NE(capture_of(stream), 0U);
  draw(stream);
  later.capture_end();
  later.replay();
  stream.synchronize();
  EXPECT_EQ(g_drawn.size(), 1U);
}

TEST_F(GraphTest, ASecondCaptureNeedsAReset) {
  capture([&] { draw(stream); });
  EXPECT_TRUE(mentions(error_of([&] { graph.capture_begin(); }), "already owns a captured graph"));
  graph.reset();
  capture([&] { draw(stream); });
}

}  // namespace
}  // namespace openreg::backend
