// Devices that have failed for good. All tests of this file run with sticky errors.

#include "runtime/device_health.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "graph_helpers.h"
#include "runtime/event.h"
#include "runtime/fault_table.h"
#include "runtime/graph_exec.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

const bool kSticky = [] {
  setenv("TORCH_OPENREG_STICKY_ERRORS", "1", 1);
  return true;
}();

class DeviceHealth : public ::testing::Test {
 protected:
  void TearDown() override {
    for (int device = 0; device < 2; ++device) reset_health(device);
  }

  static void fail(Stream& stream) {
    enqueue(stream, [] { throw std::runtime_error("index 7 is out of bounds"); });
  }
  static void expect_failed(const std::function<void()>& call, const char* what) {
    for (int i = 0; i < 2; ++i) {
      try {
        call();
        ADD_FAILURE() << what << " did not throw";
      } catch (const DeviceError& error) {
        EXPECT_PRED2(contains, std::string(error.what()), "index 7 is out of bounds")
            << what << ": " << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << " threw " << error.what();
      }
    }
  }
};

TEST_F(DeviceHealth, EachLaterCallRaisesTheErrorOfACommand) {
  const OwnStream stream;
  const OwnStream other;
  const OwnStream healthy(1);
  Event recorded(/*timing=*/true);
  Event later(/*timing=*/true);
  recorded.record(*stream);
  later.record(*stream);
  Log log;
  const auto exec = GraphExec::make(captured(*stream, [&] { append(*stream, log, 0); }));
  fail(*stream);
  EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");

  const std::map<const char*, std::function<void()>> calls{
      {"synchronize", [&] { stream->synchronize(); }},
      {"synchronize of another stream", [&] { other->synchronize(); }},
      {"synchronize of the device", [] { synchronize_device(0); }},
      {"query", [&] { other->query(); }},
      {"a launch", [&] { enqueue_nothing(*other); }},
      {"a launch that waits", [&] { other->enqueue_and_wait(empty_kernel(), {}); }},
      {"record", [&] { Event().record(*other); }},
      {"wait of a stream", [&] { recorded.wait(*healthy); }},
      {"wait_stream", [&] { wait_stream(*other, *healthy); }},
      {"query of an event", [&] { recorded.query(); }},
      {"synchronize of an event", [&] { recorded.synchronize(); }},
      {"elapsed_time", [&] { Event::elapsed_ms(recorded, later); }},
      {"replay", [&] { exec->enqueue(*other); }},
      {"capture", [&] { begin_capture(*other, CaptureMode::kThreadLocal); }}};
  for (const auto& [what, call] : calls) expect_failed(call, what);

  // These still answer.
  create_stream(0);
  EXPECT_TRUE(other->idle());
  EXPECT_TRUE(recorded.is_complete());
  Event event;
  event.record_internal(*other);
  drain_device(0);
  EXPECT_TRUE(event.is_complete());
  // The other device goes on.
  enqueue_nothing(*healthy);
  healthy->synchronize();
  EXPECT_EQ(health_of(0), Health::kFailed);
  EXPECT_EQ(health_of(1), Health::kHealthy);
}

TEST_F(DeviceHealth, QueuedWorkOfAllItsStreamsIsSkipped) {
  const OwnStream first;
  const OwnStream second;
  std::atomic<bool> ran{false};
  {
    Blocker blocker(*second);
    enqueue(*second, [&] { ran = true; });
    fail(*first);
    EXPECT_NE(error_of([&] { first->synchronize(); }), "nothing");
  }
  drain_device(0);
  EXPECT_FALSE(ran);
}

TEST_F(DeviceHealth, AResetMakesItUsable) {
  const OwnStream stream;
  fail(*stream);
  EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing");
  bool called = false;
  EXPECT_TRUE(reset_health(0, [&] { called = true; }).empty());  // it has been raised
  EXPECT_TRUE(called);
  bool ran = false;
  enqueue(*stream, [&] { ran = true; });
  stream->synchronize();
  EXPECT_TRUE(ran);
  EXPECT_EQ(health_of(0), Health::kHealthy);
}

TEST_F(DeviceHealth, AResetReturnsWhatNoCallHasRaised) {
  const OwnStream stream;
  fail(*stream);
  drain_device(0);
  const auto uncollected = reset_health(0);
  ASSERT_EQ(uncollected.size(), 1U);
  EXPECT_EQ(uncollected[0], "openreg: test_function failed on openreg:0, stream " +
                                std::to_string(stream->id()) + ": index 7 is out of bounds");
}

TEST_F(DeviceHealth, ALostDeviceSaysWhy) {
  const OwnStream stream;
  const OwnStream healthy(1);
  lose_device(0, "injected fault (lost@launch:1)");
  const auto error = error_of([&] { enqueue_nothing(*stream); });
  EXPECT_EQ(
      error,
      "openreg:0: the device is lost: injected fault (lost@launch:1). Each call that needs it "
      "raises this error; other devices can be used, and torch.openreg.reset_device(0) makes "
      "this one usable again");
  EXPECT_EQ(error_of([&] { stream->query(); }), error);
  enqueue_nothing(*healthy);
  healthy->synchronize();
  reset_health(0);
  enqueue_nothing(*stream);
  stream->synchronize();
}

TEST_F(DeviceHealth, WhatHangsEndsWhenTheDeviceIsLost) {
  const OwnStream stream;
  const auto fault = faults::arm(FaultSpec::parse("hang@launch"));
  fault->hang(*stream);
  std::thread waiting([&] { EXPECT_NE(error_of([&] { stream->synchronize(); }), "nothing"); });
  lose_device(0, "a test");
  waiting.join();
  faults::disarm(fault);
}

TEST_F(DeviceHealth, AFailureOfABlockingLaunchIsTheDevicesToo) {
  const OwnStream stream;
  static const Kernel failing("test_blocking_failure",
                              [](const Kernel&, std::span<const std::byte>) {
                                throw std::runtime_error("index 7 is out of bounds");
                              });
  EXPECT_EQ(error_of([&] { stream->enqueue_and_wait(failing, {}); }), "index 7 is out of bounds");
  EXPECT_EQ(health_of(0), Health::kHealthy);  // the call's own error
  EXPECT_EQ(error_of([&] { stream->enqueue_and_wait(failing, {}, {}, FailureScope::kDevice); }),
            "index 7 is out of bounds");
  expect_failed([&] { stream->synchronize(); }, "synchronize");
}

TEST_F(DeviceHealth, LosingAndResettingWhileOthersLaunch) {
  const OwnStream stream;
  std::atomic<bool> stop{false};
  std::atomic<int> launched{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        try {
          enqueue_nothing(*stream);
          ++launched;
          stream->synchronize();
        } catch (const Error&) {
        }
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    lose_device(0, "a test");
    reset_health(0);
  }
  const int before = launched;
  EXPECT_TRUE(happens([&] { return launched > before + 2; }));
  stop = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace openreg
