#include "runtime/idle_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "../needs_engines.h"
#include "graph_helpers.h"
#include "runtime/trace.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

std::atomic<int> g_runs{0};
const Kernel& idle_kernel() {
  static const Kernel kernel("test_idle", [](const Kernel&, auto) { ++g_runs; });
  return kernel;
}

TEST(IdleCommand, IsNotQueued) {
  OPENREG_NEEDS_ENGINES("other schedules see each command");
  const OwnStream stream;
  g_runs = 0;
  enqueue_idle(*stream, idle_kernel(), {}, false);
  stream->synchronize();
  EXPECT_EQ(g_runs, 0);
}

TEST(IdleCommand, WritesAtOnceIfTheStreamHasNoWork) {
  OPENREG_NEEDS_ENGINES("other schedules see each command");
  const OwnStream stream;
  g_runs = 0;
  enqueue_idle(*stream, idle_kernel(), {}, true);
  EXPECT_EQ(g_runs, 1);
}

TEST(IdleCommand, WritesAfterTheWorkOfTheStream) {
  OPENREG_NEEDS_ENGINES("other schedules see each command");
  const OwnStream stream;
  Gate gate;
  g_runs = 0;
  enqueue(*stream, [&] { gate.wait(); });
  enqueue_idle(*stream, idle_kernel(), {}, true);
  EXPECT_EQ(g_runs, 0);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(g_runs, 1);
}

TEST(IdleCommand, IsANodeOfACapture) {
  const OwnStream stream;
  const auto graph = captured(*stream, [&] { enqueue_idle(*stream, idle_kernel(), {}, false); });
  EXPECT_EQ(graph.nodes.size(), 1U);
}

TEST(IdleCommand, IsInATrace) {
  const OwnStream stream;
  tracing::start(100);
  enqueue_idle(*stream, idle_kernel(), {}, false);
  stream->synchronize();
  const auto trace = tracing::stop();
  EXPECT_EQ(std::ranges::count_if(trace.slices,
                                  [](const TraceSlice& slice) {
                                    return slice.what == TraceSlice::What::kCommand &&
                                           slice.name == std::string("test_idle");
                                  }),
            1);
}

}  // namespace
}  // namespace openreg
