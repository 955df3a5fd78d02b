#include "runtime/capture.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "graph_helpers.h"
#include "runtime/event.h"
#include "runtime/fence.h"
#include "runtime/stream_impl.h"
#include "runtime/stream_operation.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

constexpr const char* kNotPermitted = "openreg: operation not permitted when stream is capturing (";

/// Expects that `call` throws, that the end of the capture gives the reason, and that the stream
/// stays usable.
template <class F>
void expect_invalidated(F&& call, const std::string& sentence,
                        CaptureMode mode = CaptureMode::kGlobal) {
  const OwnStream stream;
  Log log;
  begin_capture(*stream, mode);
  append(*stream, log, 1);
  const auto error = error_of([&] { call(*stream); });
  EXPECT_PRED2(begins_with, error, sentence);
  EXPECT_EQ(error_of([&] { append(*stream, log, 2); }),
            "openreg: operation failed due to a previous error during capture: " + error);
  EXPECT_EQ(error_of([&] { end_capture(*stream); }),
            "openreg: operation failed due to a previous error during capture: " + error);
  EXPECT_EQ(capture_of(*stream), 0U);
  append(*stream, log, 3);
  stream->synchronize();
  EXPECT_EQ(log.take(), std::vector<int>{3});
}

template <class F>
void in_another_thread(F&& f) {
  std::thread(std::forward<F>(f)).join();
}

TEST(Capture, WhatIsSubmittedBecomesNodesAndDoesNotRun) {
  const OwnStream stream;
  Log log;
  const auto graph = captured(*stream, [&] {
    EXPECT_NE(capture_of(*stream), 0U);
    append(*stream, log, 1);
    append(*stream, log, 2);
  });
  EXPECT_EQ(capture_of(*stream), 0U);
  stream->synchronize();
  EXPECT_TRUE(log.take().empty());
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_STREQ(graph.nodes[0].kernel->name(), "test_append");
  EXPECT_TRUE(graph.nodes[0].after.empty());
  EXPECT_EQ(graph.nodes[1].after, std::vector<std::uint32_t>{0});
  EXPECT_EQ(graph.ends, std::vector<std::uint32_t>{1});
}

TEST(Capture, WorkOfOtherStreamsRunsMeanwhile) {
  const OwnStream stream;
  const OwnStream other;
  Log log;
  const auto graph = captured(
      *stream,
      [&] {
        append(*other, log, 1);
        other->synchronize();
        EXPECT_EQ(log.take(), std::vector<int>{1});
      },
      CaptureMode::kRelaxed);
  EXPECT_TRUE(graph.nodes.empty());
}

TEST(Capture, AForkAndAJoinBecomeEdges) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto graph = captured(*stream, [&] {
    append(*stream, log, 0);
    wait_stream(*side, *stream);
    EXPECT_EQ(capture_of(*side), capture_of(*stream));
    append(*side, log, 1);
    append(*stream, log, 2);
    wait_stream(*stream, *side);
    append(*stream, log, 3);
  });
  EXPECT_EQ(capture_of(*side), 0U);
  ASSERT_EQ(graph.nodes.size(), 4U);
  EXPECT_EQ(graph.lanes.size(), 2U);
  EXPECT_EQ(graph.nodes[1].lane, 1U);
  EXPECT_EQ(graph.nodes[1].after, std::vector<std::uint32_t>{0});
  EXPECT_EQ(graph.nodes[2].after, std::vector<std::uint32_t>{0});
  EXPECT_EQ(graph.nodes[3].after, (std::vector<std::uint32_t>{1, 2}));
}

TEST(Capture, AForkThatWasNotJoinedIsAnErrorAtTheEnd) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto error = error_of([&] {
    captured(*stream, [&] {
      wait_stream(*side, *stream);
      append(*side, log, 1);
    });
  });
  EXPECT_PRED2(begins_with, error, "openreg: capturing stream has unjoined work (test_append on ");
  EXPECT_EQ(capture_of(*side), 0U);
  append(*side, log, 2);
  side->synchronize();
  EXPECT_EQ(log.take(), std::vector<int>{2});
}

TEST(Capture, AStreamThatForksAndDoesNothingNeedsNoJoin) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto graph = captured(*stream, [&] {
    append(*stream, log, 1);
    wait_stream(*side, *stream);
  });
  EXPECT_EQ(graph.nodes.size(), 1U);
}

TEST(Capture, AWaitForWorkOutsideIsAnError) {
  Event outside;
  const OwnStream other;
  outside.record(*other);
  other->synchronize();
  expect_invalidated([&](Stream& stream) { outside.wait(stream); },
                     "openreg: dependency created on uncaptured work in another stream (");
}

TEST(Capture, AnEventThatWasNeverRecordedIsNoWait) {
  const OwnStream stream;
  Event never;
  const auto graph = captured(*stream, [&] { never.wait(*stream); });
  EXPECT_TRUE(graph.nodes.empty());
}

TEST(Capture, TwoCapturesDoNotMerge) {
  const OwnStream stream;
  const OwnStream other;
  begin_capture(*other, CaptureMode::kRelaxed);
  Event event;
  const auto error = error_of([&] {
    captured(*stream, [&] {
      event.record(*stream);
      event.wait(*other);
    });
  });
  EXPECT_PRED2(begins_with, error,
               "openreg: operation would result in a merge of separate capture sequences (");
  end_capture(*other);
}

TEST(Capture, ASecondCaptureOfTheStreamIsAnError) {
  expect_invalidated([](Stream& stream) { begin_capture(stream, CaptureMode::kGlobal); },
                     std::string(kNotPermitted) + "a capture begins on stream ");
}

TEST(Capture, CallsThatNeedItsResultsSpoilItInEveryMode) {
  for (const auto mode : {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    const auto expect = [&](auto call, const std::string& what) {
      expect_invalidated(call, kNotPermitted + what, mode);
    };
    expect([](Stream& stream) { stream.synchronize(); }, "synchronize on stream ");
    expect([](Stream& stream) { stream.query(); }, "query on stream ");
    expect([](Stream& stream) { synchronize_device(stream.device()); },
           "synchronize of the device on stream ");
    expect([](Stream& stream) { stream.enqueue_and_wait(empty_kernel(), {}); },
           "test_nothing on stream ");
  }
}

TEST(Capture, ACapturedEventCannotBeAskedOrWaitedFor) {
  const std::string sentence =
      "openreg: operation not permitted on an event last recorded in a capturing stream (";
  for (const auto& ask : std::vector<std::function<void(Event&)>>{
           [](Event& event) { event.query(); }, [](Event& event) { event.synchronize(); },
           [](Event& event) { Event::elapsed_ms(event, event); }}) {
    expect_invalidated(
        [&](Stream& stream) {
          Event event(/*timing=*/true);
          event.record(stream);
          ask(event);
        },
        sentence, CaptureMode::kRelaxed);
  }
}

TEST(Capture, ACapturedEventIsOfNoUseAfterTheCaptureUntilItIsRecordedAgain) {
  const OwnStream stream;
  const OwnStream other;
  Event event;
  captured(*stream, [&] { event.record(*stream); });
  const std::string sentence =
      "openreg: operation not permitted on an event last recorded in a capturing stream (";
  EXPECT_PRED2(begins_with, error_of([&] { event.wait(*other); }), sentence);
  EXPECT_PRED2(begins_with, error_of([&] { event.query(); }), sentence);
  event.record(*stream);
  event.wait(*other);
  other->synchronize();
  EXPECT_TRUE(event.query());
}

TEST(Capture, UnsafeCallsOfTheSameThreadAreForbiddenUnlessItIsRelaxed) {
  const OwnStream other;
  const auto ask = [&](Stream&) { other->query(); };
  expect_invalidated(ask, std::string(kNotPermitted) + "query of a stream, while stream ");
  expect_invalidated(ask, std::string(kNotPermitted) + "query of a stream, while stream ",
                     CaptureMode::kThreadLocal);
  const OwnStream stream;
  captured(
      *stream, [&] { ask(*stream); }, CaptureMode::kRelaxed);
}

TEST(Capture, UnsafeCallsOfOtherThreadsAreForbiddenOnlyIfItIsGlobal) {
  const OwnStream other;
  const auto ask = [&] {
    std::string error;
    in_another_thread([&] { error = error_of([&] { other->query(); }); });
    return error;
  };
  const OwnStream stream;
  for (const auto mode : {CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    captured(
        *stream, [&] { EXPECT_EQ(ask(), "nothing"); }, mode);
  }
  begin_capture(*stream, CaptureMode::kGlobal);
  const auto error = ask();
  EXPECT_PRED2(begins_with, error,
               std::string(kNotPermitted) + "query of a stream in another thread, while stream ");
  EXPECT_NE(error_of([&] { end_capture(*stream); }), "nothing");
  EXPECT_EQ(ask(), "nothing");
}

TEST(Capture, EndsInTheThreadThatHasBegunItUnlessItIsRelaxed) {
  const OwnStream stream;
  begin_capture(*stream, CaptureMode::kThreadLocal);
  std::string error;
  in_another_thread([&] { error = error_of([&] { end_capture(*stream); }); });
  EXPECT_PRED2(begins_with, error,
               "openreg: attempt to terminate a thread-local capture sequence from another thread");
  enqueue_nothing(*stream);
  EXPECT_EQ(end_capture(*stream).nodes.size(), 1U);
  begin_capture(*stream, CaptureMode::kRelaxed);
  in_another_thread([&] { error = error_of([&] { end_capture(*stream); }); });
  EXPECT_EQ(error, "nothing");
}

TEST(Capture, EndsOnlyOnTheStreamOnWhichItBegan) {
  const OwnStream stream;
  const OwnStream side;
  begin_capture(*stream, CaptureMode::kGlobal);
  wait_stream(*side, *stream);
  for (auto* wrong : {&*side, &default_stream(0)}) {
    EXPECT_PRED2(begins_with, error_of([&] { end_capture(*wrong); }),
                 "openreg: no capture has begun on stream ");
  }
  end_capture(*stream);
}

TEST(Capture, TakesTheWorkOfOtherThreadsToo) {
  const OwnStream stream;
  Log log;
  const auto graph = captured(*stream, [&] {
    append(*stream, log, 1);
    in_another_thread([&] { append(*stream, log, 2); });
  });
  EXPECT_EQ(graph.nodes.size(), 2U);
}

TEST(Capture, WhatRunsOnceCannotBeCaptured) {
  class Operation final : public StreamOperation {
   public:
    Operation() : StreamOperation("test_once") {}
    void begin() override {}
  };
  static const OperationKernel kernel("test_once");
  expect_invalidated([](Stream& stream) { enqueue(stream, kernel, std::make_shared<Operation>()); },
                     std::string(kNotPermitted) + "test_once");
}

TEST(Capture, AnInternalRecordOnACapturedStreamCompletesAfterTheCapture) {
  const OwnStream stream;
  Event event;
  captured(*stream, [&] {
    event.record_internal(*stream);
    stream->drain();  // work that the stream had before
    EXPECT_FALSE(event.is_complete());
  });
  stream->synchronize();
  EXPECT_TRUE(event.is_complete());
}

TEST(Capture, AGraphBecomesAPartOfAnother) {
  const OwnStream stream;
  const OwnStream side;
  Log log;
  const auto inner = captured(*stream, [&] {
    wait_stream(*side, *stream);
    append(*side, log, 1);
    append(*stream, log, 2);
    wait_stream(*stream, *side);
  });
  const auto outer = captured(*stream, [&] {
    append(*stream, log, 0);
    capture_graph(*stream, inner);
    append(*stream, log, 3);
  });
  ASSERT_EQ(outer.nodes.size(), 4U);
  EXPECT_EQ(outer.lanes.size(), 2U);
  EXPECT_EQ(outer.nodes[1].after, std::vector<std::uint32_t>{0});
  EXPECT_EQ(outer.nodes[2].after, std::vector<std::uint32_t>{0});
  EXPECT_EQ(outer.nodes[3].after, (std::vector<std::uint32_t>{1, 2}));
}

TEST(Capture, AbandonedCapturesOfAllThreadsAndModesEnd) {
  const OwnStream first;
  const OwnStream second;
  const OwnStream forked;
  Log log;
  begin_capture(*first, CaptureMode::kGlobal);
  append(*first, log, 1);
  in_another_thread([&] {
    begin_capture(*second, CaptureMode::kThreadLocal);
    append(*second, log, 2);
    Event event;
    event.record(*second);
    event.wait(*forked);
  });
  const auto name = [](const Stream& stream) {
    return "the capture of stream " + std::to_string(stream.id()) + " of openreg:0";
  };
  EXPECT_EQ(abandon_captures(0), (std::vector<std::string>{name(*first), name(*second)}));
  EXPECT_FALSE(is_capturing());
  EXPECT_TRUE(abandon_captures(0).empty());
  for (auto* const stream : {&*first, &*second, &*forked}) {
    EXPECT_EQ(capture_of(*stream), 0U);
    append(*stream, log, 3);
    stream->synchronize();
  }
  EXPECT_EQ(log.take(), (std::vector<int>{3, 3, 3}));
  EXPECT_PRED2(begins_with, error_of([&] { end_capture(*first); }),
               "openreg: no capture has begun");
}

TEST(Capture, EarlierCapturesThanTheAbandonedOnesGoOn) {
  const OwnStream earlier;
  const OwnStream later;
  Log log;
  const auto graph = captured(*earlier, [&] {
    append(*earlier, log, 1);
    const CaptureId before = last_capture();
    begin_capture(*later, CaptureMode::kRelaxed);
    EXPECT_EQ(abandon_captures(before).size(), 1U);
    append(*earlier, log, 2);
  });
  EXPECT_EQ(graph.nodes.size(), 2U);
}

TEST(Capture, AbandonedInternalRecordsComplete) {
  const OwnStream stream;
  begin_capture(*stream, CaptureMode::kGlobal);
  const FenceRef fence(new Fence(&StreamImpl::of(*stream)));
  EXPECT_TRUE(capture_internal_record(StreamImpl::of(*stream), fence));
  abandon_captures(0);
  stream->synchronize();
  EXPECT_TRUE(fence->done());
}

TEST(Capture, AGraphIsWrittenInDot) {
  const OwnStream stream;
  Log log;
  const auto graph = captured(*stream, [&] {
    append(*stream, log, 0);
    append(*stream, log, 1);
  });
  std::ostringstream text;
  write_dot(graph, text);
  EXPECT_EQ(text.str(),
            "digraph openreg {\n"
            "  node [shape=box];\n"
            "  n0 [label=\"0: test_append\\nopenreg:0, lane 0\"];\n"
            "  n1 [label=\"1: test_append\\nopenreg:0, lane 0\"];\n"
            "  n0 -> n1;\n"
            "}\n");
}

}  // namespace
}  // namespace openreg
