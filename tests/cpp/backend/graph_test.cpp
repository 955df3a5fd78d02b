#include "backend/graph.h"

#include <ATen/accelerator/Graph.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/stream.h"

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
  void capture(F&& f) {
    graph.capture_begin();
    f();
    graph.capture_end();
  }

  openreg::Stream& stream = stream_from_pool(0, Priority::kNormal);
  CapturableGraph graph;

 private:
  openreg::Stream* before_ = nullptr;
};

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

TEST_F(GraphTest, AGraphWhoseCaptureWasAbandonedLeavesLaterOnesOfTheStreamAlone) {
  CapturableGraph later;
  graph.capture_begin();
  abandon_captures(0);
  later.capture_begin();
  try {
    graph.capture_end();
    ADD_FAILURE() << "ended a capture that was abandoned";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("the capture was abandoned"),
              std::string_view::npos);
  }
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

}  // namespace
}  // namespace openreg::backend
