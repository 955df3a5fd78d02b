#include "runtime/stream_operation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../needs_engines.h"
#include "runtime/callbacks.h"
#include "runtime/stream.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

const OperationKernel& kernel() {
  static const OperationKernel kernel("test_operation");
  return kernel;
}

/// Records what happens to it.
class Operation : public StreamOperation {
 public:
  Operation() : StreamOperation("test_operation") {}
  ~Operation() override { ++gone; }
  void begin() override {
    thread = std::this_thread::get_id();
    begun = true;
    if (throws) throw std::runtime_error("cannot begin");
  }
  void skip() noexcept override { skipped = true; }

  std::thread::id thread;  // that began it
  std::atomic<bool> begun{false};
  std::atomic<bool> skipped{false};
  bool throws = false;
  static inline std::atomic<int> gone{0};
};

std::shared_ptr<Operation> queued(Stream& stream, bool throws = false) {
  auto operation = std::make_shared<Operation>();
  operation->throws = throws;
  enqueue(stream, kernel(), operation);
  return operation;
}

std::string sentence(const OwnStream& stream, const std::string& cause) {
  return "openreg: test_operation failed on openreg:0, stream " + std::to_string(stream->id()) +
         ": " + cause +
         ". Later work on that stream was skipped; set TORCH_OPENREG_STACKS=1 to report the line "
         "of "
         "the call, or TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at "
         "the call";
}

TEST(StreamOperation, BeginsOnTheSubmittingThreadIfTheStreamIsIdle) {
  OPENREG_NEEDS_ENGINES("without them brief commands do not run at once");
  const OwnStream stream;
  const auto operation = queued(*stream);
  EXPECT_EQ(operation->thread, std::this_thread::get_id());
  EXPECT_FALSE(stream->idle());
  operation->end();
  stream->synchronize();
}

TEST(StreamOperation, DoesNotBeginWithinTheCommandThatEnqueuesIt) {
  const OwnStream stream;
  const OwnStream other;
  std::shared_ptr<Operation> operation;
  enqueue(*stream, [&] {
    operation = queued(*other);
    EXPECT_FALSE(operation->begun && operation->thread == std::this_thread::get_id());
  });
  stream->synchronize();
  ASSERT_TRUE(happens([&] { return operation->begun.load(); }));
  operation->end();
  other->synchronize();
}

TEST(StreamOperation, TheThreadThatEndsItRunsWhatIsBriefBehindIt) {
  OPENREG_NEEDS_ENGINES("without them brief commands do not run at once");
  BusyEngines busy;
  const OwnStream stream;
  const OwnStream other;
  const auto operation = queued(*stream);
  Event end;
  end.record(*stream);
  end.wait(*other);
  const auto next = queued(*other);
  std::atomic<bool> ran{false};
  enqueue(*other, [&] { ran = true; });
  EXPECT_FALSE(next->begun);
  operation->end();
  EXPECT_EQ(next->thread, std::this_thread::get_id());
  EXPECT_TRUE(stream->idle());
  next->end();
  EXPECT_FALSE(ran);  // kernels run on engines
  busy.open();
  other->synchronize();
  EXPECT_TRUE(ran);
}

TEST(StreamOperation, BeginsAfterTheWorkBeforeItAndEndsBeforeTheWorkAfterIt) {
  const OwnStream stream;
  std::atomic<bool> before{false};
  std::atomic<bool> after{false};
  Gate gate;
  enqueue(
      *stream,
      [&] {
        gate.wait();
        before = true;
      },
      waiting_kernel());
  const auto operation = queued(*stream);
  enqueue(*stream, [&] { after = true; });
  EXPECT_FALSE(operation->begun);
  gate.open();
  ASSERT_TRUE(happens([&] { return operation->begun.load(); }));
  EXPECT_TRUE(before);
  EXPECT_FALSE(stream->idle());
  operation->end();
  stream->synchronize();
  EXPECT_TRUE(after);
  EXPECT_FALSE(operation->skipped);
}

TEST(StreamOperation, AnErrorAtItsEndIsTheStreamsUnderTheOperationsName) {
  const OwnStream stream;
  const auto operation = queued(*stream);
  bool skipped = true;
  enqueue(*stream, [&] { skipped = false; });
  operation->end(std::make_exception_ptr(std::runtime_error("peer is gone")));
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), sentence(stream, "peer is gone"));
  EXPECT_TRUE(skipped);
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), "nothing");
}

TEST(StreamOperation, AnErrorAtItsBeginningIsTheStreamsAndEndsIt) {
  const OwnStream stream;
  const auto operation = queued(*stream, true);
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), sentence(stream, "cannot begin"));
  EXPECT_TRUE(operation->skipped);
}

TEST(StreamOperation, IsSkippedByAStreamThatHasFailedWhichDoesNotWaitForIt) {
  const OwnStream stream;
  const auto first = queued(*stream, true);
  const auto second = queued(*stream);
  EXPECT_EQ(error_of([&] { stream->synchronize(); }), sentence(stream, "cannot begin"));
  EXPECT_TRUE(second->skipped);
  EXPECT_FALSE(second->begun);
}

TEST(StreamOperation, TheQueueReleasesItWhateverBecomesOfIt) {
  const OwnStream stream;
  const int gone = Operation::gone;
  queued(*stream, true);  // fails
  queued(*stream);        // is skipped
  EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
  EXPECT_EQ(Operation::gone, gone + 2);
  queued(*stream)->end();
  stream->synchronize();
  EXPECT_EQ(Operation::gone, gone + 3);
}

TEST(StreamOperation, ManyInFlightHoldUpNoEngine) {
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int i = 0; i < 16; ++i) {
    streams.push_back(std::make_unique<OwnStream>());
    operations.push_back(queued(**streams.back()));
  }
  for (const auto& operation : operations) {
    EXPECT_TRUE(happens([&] { return operation->begun.load(); }));
  }
  const OwnStream other;
  enqueue(*other, [] {});
  EXPECT_TRUE(happens([&] { return other->idle(); }));
  for (const auto& operation : operations) {
    std::thread([&operation] { operation->end(); }).join();
  }
  for (const auto& stream : streams) (*stream)->synchronize();
}

// There is room for its beginning but not for the wait for its end.
TEST(StreamOperation, IsQueuedWithTheWaitForItsEndEvenIfTheQueueIsFullAndTheHostInterrupted) {
  static std::atomic<bool> interrupts;
  interrupts = true;
  install_callbacks({.check_interrupt = [] {
    if (interrupts) throw std::runtime_error("interrupted");
  }});
  const OwnStream stream;
  Blocker blocker(*stream);
  std::optional<QueueLimit> limit(std::in_place, *stream, 2);
  const auto operation = std::make_shared<Operation>();
  EXPECT_EQ(error_of([&] { enqueue(*stream, kernel(), operation); }), "nothing");
  EXPECT_EQ(error_of([&] { enqueue(*stream, kernel(), std::make_shared<Operation>()); }),
            "interrupted")
      << "the queue is full";
  interrupts = false;
  limit.reset();
  std::atomic<bool> after{false};
  enqueue(*stream, [&] { after = true; });
  const auto parks = counters::parks.value();
  blocker.open();
  ASSERT_TRUE(happens([&] { return after || counters::parks.value() > parks; }));
  EXPECT_TRUE(operation->begun);
  EXPECT_FALSE(after);
  operation->end();
  stream->synchronize();
  EXPECT_TRUE(after);
}

}  // namespace
}  // namespace openreg
