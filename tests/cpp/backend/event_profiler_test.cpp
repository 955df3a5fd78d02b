#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <stdexcept>
#include <vector>

#include "backend/device.h"

namespace openreg::backend {
namespace {

const torch::profiler::impl::ProfilerStubs& stubs() {
  return *torch::profiler::impl::privateuse1Stubs();
}

TEST(EventProfiler, CallsAFunctionOnEachDeviceAndReturnsToThePreviousOne) {
  set_device(1);
  std::vector<int> devices;
  stubs().onEachDevice([&](int device) {
    EXPECT_EQ(current_device(), device);
    devices.push_back(device);
  });
  EXPECT_EQ(devices, (std::vector{0, 1}));
  EXPECT_EQ(current_device(), 1);
  set_device(0);
}

TEST(EventProfiler, ReturnsToThePreviousDeviceFromAFunctionThatThrows) {
  set_device(0);
  const auto call = [](int device) {
    if (device == 1) throw std::runtime_error("on device 1");
  };
  EXPECT_THROW(stubs().onEachDevice(call), std::runtime_error);
  EXPECT_EQ(current_device(), 0);
}

}  // namespace
}  // namespace openreg::backend
