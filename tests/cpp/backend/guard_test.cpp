#include "backend/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <set>
#include <string>
#include <vector>

#include "../runtime/stream_helpers.h"
#include "backend/device.h"
#include "backend/stream.h"
#include "slot.h"

namespace openreg::backend {
namespace {

using namespace testing;

c10::Device device(int index) { return {kDeviceType, static_cast<c10::DeviceIndex>(index)}; }

class GuardTest : public ::testing::Test {
 protected:
  const c10::impl::DeviceGuardImplInterface& guard = *c10::impl::getDeviceGuardImpl(kDeviceType);

  void TearDown() override {
    guard.setDevice(device(0));
    for (int i : {0, 1}) guard.exchangeStream(guard.getDefaultStream(device(i)));
  }

  /// The message of the c10::Error that `f` throws.
  template <class F>
  static std::string error_of(F&& f) {
    try {
      f();
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "no error";
  }
};

// --- Devices ---

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

TEST_F(GuardTest, AStreamThatWasNeverMadeIsRefused) {
  const c10::Stream unknown(c10::Stream::UNSAFE, device(0), 123456);
  EXPECT_THROW(guard.exchangeStream(unknown), c10::Error);
  EXPECT_THROW((void)guard.queryStream(unknown), c10::Error);
}

TEST_F(GuardTest, WarningsOfAnEngineReachTheHostThatWaits) {
  struct Listener final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { heard.push_back(warning.msg()); }
    std::vector<std::string> heard;
  } listener;
  const auto stream = guard.getNewStream(device(0));
  Blocker blocker(to_runtime(stream));
  // the engine has the stream, and keeps it because no host waits
  std::binary_semaphore warned(0);
  enqueue(to_runtime(stream), [&] {
    TORCH_WARN("from a kernel");
    warned.release();
  });
  blocker.open();
  warned.acquire();
  const c10::WarningUtils::WarningHandlerGuard listening(&listener);
  guard.synchronizeStream(stream);
  EXPECT_EQ(listener.heard, std::vector<std::string>{"from a kernel"});
}

// --- Events ---

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

}  // namespace
}  // namespace openreg::backend
