#include "backend/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "../needs_engines.h"
#include "backend/device.h"
#include "backend/stream.h"
#include "runtime/capture.h"
#include "runtime/event.h"
#include "slot.h"
#include "support.h"

namespace openreg::backend {
namespace {

using testing::enqueue;
using testing::StreamGate;

c10::Device device(int index) { return {kDeviceType, static_cast<c10::DeviceIndex>(index)}; }

class GuardTest : public ::testing::Test {
 protected:
  const c10::impl::DeviceGuardImplInterface& guard = *c10::impl::getDeviceGuardImpl(kDeviceType);

  void TearDown() override {
    guard.setDevice(device(0));
    for (int i : {0, 1}) guard.exchangeStream(guard.getDefaultStream(device(i)));
  }

  /// The message of the c10::Error that `f` throws.
  template <class E = c10::Error, class F>
  static std::string error_of(F&& f) {
    try {
      f();
    } catch (const E& e) {
      return e.what_without_backtrace();
    }
    return "no error";
  }
};

// --- Devices ---

TEST_F(GuardTest, PyTorchFindsTheGuardUnderItsKindOfDevice) {
  EXPECT_EQ(&guard, &device_guard());
  EXPECT_EQ(guard.type(), kDeviceType);
  EXPECT_EQ(guard.deviceCount(), 2);
}

TEST_F(GuardTest, ExchangeReturnsThePreviousDevice) {
  EXPECT_EQ(guard.exchangeDevice(device(1)), device(0));
  EXPECT_EQ(guard.getDevice(), device(1));
  guard.uncheckedSetDevice(device(0));
  EXPECT_EQ(guard.getDevice(), device(0));
}

TEST_F(GuardTest, ADeviceWithoutIndexIsTheCurrentOne) {
  guard.setDevice(device(1));
  guard.setDevice(device(-1));
  guard.uncheckedSetDevice(device(-1));
  EXPECT_EQ(guard.getDevice(), device(1));
  EXPECT_EQ(guard.getStream(device(-1)).device(), device(1));
}

TEST_F(GuardTest, ADeviceThatDoesNotExistIsRefusedAndChangesNothing) {
  const std::string expected =
      "openreg: The device index is out of range (got 2, expected 0 to 1); TORCH_OPENREG_DEVICES "
      "sets how many devices there are";
  EXPECT_EQ(error_of([&] { guard.setDevice(device(2)); }), expected);
  EXPECT_EQ(error_of([&] { guard.exchangeDevice(device(2)); }), expected);
  EXPECT_EQ(error_of([&] { guard.getStream(device(2)); }), expected);
  EXPECT_EQ(error_of([&] { guard.getDefaultStream(device(2)); }), expected);
  EXPECT_EQ(error_of([&] { guard.getNewStream(device(2)); }), expected);
  EXPECT_EQ(error_of([&] { guard.synchronizeDevice(2); }), expected);
  EXPECT_EQ(error_of([&] { guard.getDeviceCapability(device(2)); }), expected);
  EXPECT_EQ(guard.getDevice(), device(0));
}

TEST_F(GuardTest, AnotherKindOfDeviceIsRefused) {
  EXPECT_THROW(guard.setDevice(c10::Device(c10::kCPU)), c10::Error);
  EXPECT_THROW(guard.exchangeStream(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU))),
               c10::Error);
}

TEST_F(GuardTest, CapabilityHasAllTypes) {
  std::set<c10::ScalarType> types;
  guard.getDeviceCapability(device(0)).forEachSupportedScalarType(
      [&](c10::ScalarType t) { types.insert(t); });
  for (auto type : {c10::kFloat, c10::kDouble, c10::kHalf, c10::kBFloat16, c10::kLong, c10::kBool,
                    c10::kComplexHalf, c10::kComplexFloat, c10::kQInt8, c10::kQUInt8, c10::kQInt32,
                    c10::kQUInt4x2}) {
    EXPECT_TRUE(types.contains(type)) << type;
  }
}

// --- Streams ---

TEST_F(GuardTest, NewStreamsComeFromAPoolOfThirtyTwo) {
  std::vector<c10::Stream> streams;
  for (int i = 0; i < 32; ++i) streams.push_back(guard.getNewStream(device(0)));
  std::set<c10::StreamId> ids;
  for (const auto& stream : streams) ids.insert(stream.id());
  EXPECT_EQ(ids.size(), 32U);
  EXPECT_FALSE(ids.contains(0));
  EXPECT_EQ(guard.getNewStream(device(0)), streams[0]);
}

TEST_F(GuardTest, PrioritiesAreClamped) {
  EXPECT_EQ(to_runtime(guard.getNewStream(device(0), -5)).priority(), Priority::kHigh);
  EXPECT_EQ(to_runtime(guard.getNewStream(device(0), 5)).priority(), Priority::kNormal);
  EXPECT_EQ(to_runtime(guard.getStreamFromGlobalPool(device(0), true)).priority(), Priority::kHigh);
  EXPECT_EQ(to_runtime(guard.getStreamFromGlobalPool(device(0), false)).priority(),
            Priority::kNormal);
}

TEST_F(GuardTest, AStreamIsFoundAgainByItsNumbers) {
  const auto stream = guard.getNewStream(device(1));
  const auto again = c10::Stream::unpack3(stream.id(), stream.device_index(), stream.device_type());
  EXPECT_EQ(again, stream);
  EXPECT_EQ(guard.getStreamNativeHandle(again), &to_runtime(stream));
}

TEST_F(GuardTest, AStreamThatWasNeverMadeIsRefused) {
  const c10::Stream unknown(c10::Stream::UNSAFE, device(0), 123456);
  EXPECT_THROW(guard.exchangeStream(unknown), c10::Error);
  EXPECT_THROW((void)guard.queryStream(unknown), c10::Error);
}

TEST_F(GuardTest, AStreamIsDoneWhenItsLastCommandIs) {
  const auto stream = guard.getNewStream(device(0));
  EXPECT_TRUE(guard.queryStream(stream));
  StreamGate gate(to_runtime(stream));
  gate.wait_until_reached();
  EXPECT_FALSE(guard.queryStream(stream));
  gate.open();
  guard.synchronizeStream(stream);
  EXPECT_TRUE(guard.queryStream(stream));
}

TEST_F(GuardTest, SynchronisingADeviceWaitsForAllItsStreams) {
  std::atomic<int> done = 0;
  for (int i = 0; i < 3; ++i) enqueue(to_runtime(guard.getNewStream(device(1))), [&] { ++done; });
  guard.synchronizeDevice(1);
  EXPECT_EQ(done, 3);
  guard.setDevice(device(1));
  enqueue(to_runtime(guard.getStream(device(1))), [&] { ++done; });
  guard.synchronizeDevice(-1);
  EXPECT_EQ(done, 4);
}

TEST_F(GuardTest, AFailedCommandIsRaisedOnceByTheNextWaitAndTheStreamGoesOn) {
  const auto stream = guard.getNewStream(device(1));
  enqueue(to_runtime(stream), [] { TORCH_CHECK_INDEX(false, "index out of range in self"); });
  bool ran = false;
  enqueue(to_runtime(stream), [&] { ran = true; });
  EXPECT_EQ(error_of<c10::AcceleratorError>([&] { guard.synchronizeStream(stream); }),
            "openreg: test::work failed on openreg:1, stream " + std::to_string(stream.id()) +
                ": index out of range in self. Later work on that stream was skipped; set "
                "TORCH_OPENREG_STACKS=1 to report the line of the call, or "
                "TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call");
  EXPECT_FALSE(ran);
  enqueue(to_runtime(stream), [&] { ran = true; });
  guard.synchronizeStream(stream);
  EXPECT_TRUE(ran);
}

TEST_F(GuardTest, AskingWhetherWorkIsDoneRaisesWhatFailed) {
  const auto stream = guard.getNewStream(device(1));
  auto& source = to_runtime(stream);
  c10::Event event(kDeviceType, c10::EventFlag::BACKEND_DEFAULT);
  const auto fail = [&] {
    enqueue(source, [] { TORCH_CHECK_INDEX(false, "index out of range in self"); });
    event.record(stream);
    source.drain();
  };
  fail();
  EXPECT_THROW((void)guard.queryStream(stream), c10::AcceleratorError);
  EXPECT_TRUE(guard.queryStream(stream));
  EXPECT_TRUE(event.query());
  fail();
  EXPECT_THROW((void)event.query(), c10::AcceleratorError);
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(guard.queryStream(stream));
  fail();
  EXPECT_THROW((void)event.elapsedTime(event), c10::AcceleratorError);
  guard.synchronizeDevice(1);
}

TEST_F(GuardTest, AStreamThatIsCapturedSaysSo) {
  const auto stream = guard.getNewStream(device(0));
  EXPECT_FALSE(guard.isStreamCapturing(stream));
  begin_capture(to_runtime(stream), CaptureMode::kGlobal);
  EXPECT_TRUE(guard.isStreamCapturing(stream));
  EXPECT_FALSE(guard.isStreamCapturing(guard.getDefaultStream(device(0))));
  end_capture(to_runtime(stream));
  EXPECT_FALSE(guard.isStreamCapturing(stream));
}

TEST_F(GuardTest, WarningsOfAnEngineReachTheHostThatWaits) {
  struct Listener final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { heard.push_back(warning.msg()); }
    std::vector<std::string> heard;
  } listener;
  const auto stream = guard.getNewStream(device(0));
  StreamGate gate(to_runtime(stream));
  gate.wait_until_reached();  // the engine has the stream, and keeps it because no host waits
  std::binary_semaphore warned(0);
  enqueue(to_runtime(stream), [&] {
    TORCH_WARN("from a kernel");
    warned.release();
  });
  gate.open();
  warned.acquire();
  const c10::WarningUtils::WarningHandlerGuard listening(&listener);
  guard.synchronizeStream(stream);
  EXPECT_EQ(listener.heard, std::vector<std::string>{"from a kernel"});
}

// --- Events ---

TEST_F(GuardTest, AnEventThatWasNeverRecordedIsDone) {
  EXPECT_TRUE(guard.queryEvent(nullptr));
  guard.synchronizeEvent(nullptr);
  guard.block(nullptr, guard.getStream(device(0)));
  guard.destroyEvent(nullptr, -1);
  EXPECT_TRUE(c10::Event(kDeviceType).query());
}

TEST_F(GuardTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  OPENREG_NEEDS_ENGINES("a query would run the work that it asks about");
  const auto stream = guard.getNewStream(device(0));
  c10::Event event(kDeviceType);
  StreamGate gate(to_runtime(stream));
  event.record(stream);
  EXPECT_NE(event.eventId(), nullptr);
  EXPECT_EQ(event.device_index(), 0);
  EXPECT_FALSE(event.query());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(GuardTest, AStreamThatIsBlockedByAnEventRunsAfterIt) {
  const auto first = guard.getNewStream(device(0));
  const auto second = guard.getNewStream(device(1));
  std::vector<int> order;
  c10::Event event(kDeviceType);
  {
    StreamGate gate(to_runtime(first));
    enqueue(to_runtime(first), [&] { order.push_back(1); });
    event.record(first);
    event.block(second);
    enqueue(to_runtime(second), [&] { order.push_back(2); });
  }
  guard.synchronizeStream(second);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(GuardTest, TimeBetweenEventsWithoutTimingIsRefused) {
  void* events[2] = {};
  for (auto& event : events)
    guard.record(&event, guard.getStream(device(0)), -1, c10::EventFlag::PYTORCH_DEFAULT);
  guard.synchronizeEvent(events[1]);
  EXPECT_THROW((void)guard.elapsedTime(events[0], events[1], 0), c10::Error);
  EXPECT_THROW((void)guard.elapsedTime(events[0], nullptr, 0), c10::Error);
  for (auto* event : events) guard.destroyEvent(event, 0);
}

TEST_F(GuardTest, AnEventBelongsToTheDeviceOfItsFirstRecord) {
  c10::Event event(kDeviceType);
  event.record(guard.getStream(device(0)));
  EXPECT_THROW(event.record(guard.getStream(device(1))), c10::Error);
  void* raw = nullptr;
  EXPECT_THROW(guard.record(&raw, guard.getStream(device(1)), 0, c10::EventFlag::PYTORCH_DEFAULT),
               c10::Error);
  EXPECT_EQ(raw, nullptr);
}

TEST_F(GuardTest, AnEventMayBeDestroyedWhileAStreamWaitsForIt) {
  const auto first = guard.getNewStream(device(0));
  const auto second = guard.getNewStream(device(0));
  bool ran = false;
  {
    StreamGate gate(to_runtime(first));
    {
      c10::Event event(kDeviceType);
      event.record(first);
      event.block(second);
    }
    enqueue(to_runtime(second), [&] { ran = true; });
  }
  guard.synchronizeStream(second);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace openreg::backend
