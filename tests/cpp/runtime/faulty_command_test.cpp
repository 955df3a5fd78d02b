#include "runtime/faulty_command.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph_helpers.h"
#include "runtime/event.h"
#include "runtime/graph_exec.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace std::chrono_literals;
using namespace testing;

void append_with(const CommandFault& fault, Stream& stream, Log& log, int number) {
  const Append arguments{&log, number};
  with_faulty_command(append_kernel(), std::as_bytes(std::span(&arguments, 1)), fault,
                      [&](const Kernel& kernel, std::span<const std::byte> bytes) {
                        stream.enqueue(kernel, bytes);
                      });
}

TEST(FaultyCommand, FailsAsTheCommandThatItStandsFor) {
  const OwnStream stream;
  Log log;
  append_with({.error = "injected fault (error@launch:1)"}, *stream, log, 1);
  append(*stream, log, 2);
  const auto error = error_of([&] { stream->synchronize(); });
  EXPECT_PRED2(begins_with, error,
               "openreg: test_append failed on openreg:0, stream " + std::to_string(stream->id()) +
                   ": injected fault (error@launch:1). Later");
  EXPECT_TRUE(log.take().empty());
}

TEST(FaultyCommand, RunsAfterItsDelay) {
  const OwnStream stream;
  Log log;
  const auto begin = std::chrono::steady_clock::now();
  append_with({.delay = 50ms}, *stream, log, 1);
  append(*stream, log, 2);
  stream->synchronize();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
  EXPECT_EQ(log.take(), (std::vector{1, 2}));
}

TEST(FaultyCommand, FlipsBitsAfterItHasRun) {
  const OwnStream stream;
  Log log;
  std::array<std::byte, 4> memory{};
  append_with({.flips = {{&memory[2], std::byte{16}}}}, *stream, log, 1);
  stream->synchronize();
  EXPECT_EQ(memory, (std::array{std::byte{0}, std::byte{0}, std::byte{16}, std::byte{0}}));
  EXPECT_EQ(log.take(), std::vector{1});
}

TEST(FaultyCommand, IsSkippedAsTheOtherWouldBe) {
  static std::atomic<int> skipped{0};
  static const Kernel kernel("test_skipped", [](const Kernel&, std::span<const std::byte>) {},
                             {.skip = [](std::span<const std::byte> bytes) noexcept {
                               skipped += static_cast<int>(bytes.size());
                             }});
  skipped = 0;
  const OwnStream stream;
  const std::array<std::byte, 3> arguments{};
  const auto submit = [&](const CommandFault& fault) {
    with_faulty_command(kernel, arguments, fault,
                        [&](const Kernel& stand_in, std::span<const std::byte> bytes) {
                          stream->enqueue(stand_in, bytes);
                        });
  };
  submit({.error = "first"});  // does not run the other
  submit({.delay = 1ms});      // is skipped itself
  EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
  EXPECT_EQ(skipped, 6);
}

TEST(FaultyCommand, ADelayIsACommandToo) {
  const OwnStream stream;
  const auto begin = std::chrono::steady_clock::now();
  enqueue_delay(*stream, 30ms);
  stream->synchronize();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
}

TEST(FaultyCommand, ANodeOfARunFailsInThatRunOnly) {
  const OwnStream stream;
  Log log;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 0; i < 3; ++i) append(*stream, log, i);
  }));
  exec->enqueue(*stream, {}, {{1, {.error = "injected fault"}}});
  const auto error = error_of([&] { stream->synchronize(); });
  EXPECT_PRED2(contains, error, "test_append failed");
  EXPECT_EQ(log.take(), std::vector{0});
  exec->enqueue(*stream);
  stream->synchronize();
  EXPECT_EQ(log.take(), (std::vector{0, 1, 2}));
}

TEST(FaultyCommand, ANodeOfALaneFailsTheRun) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    append(*stream, log, 0);
    wait_stream(*side, *stream);
    append(*side, log, 1);
    wait_stream(*stream, *side);
    append(*stream, log, 2);
  }));
  exec->enqueue(*stream, {}, {{1, {.error = "injected fault"}}});
  EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
  EXPECT_EQ(log.take(), std::vector{0});
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

}  // namespace
}  // namespace openreg
