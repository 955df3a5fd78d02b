#include "backend/exception.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "runtime/command_error.h"
#include "runtime/device_health.h"

namespace openreg::backend {
namespace {

std::exception_ptr index_error() {
  try {
    TORCH_CHECK_INDEX(false, "index 7 is out of bounds.");
  } catch (...) {
    return std::current_exception();
  }
}

TEST(ExceptionTest, ResultsPassThrough) {
  int value = 1;
  EXPECT_EQ(&translate_errors([&]() -> int& { return value; }), &value);
}

TEST(ExceptionTest, AnErrorOfTheRuntimeIsPyTorchsError) {
  try {
    translate_errors([] { throw Error("openreg: no"); });
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_STREQ(e.what_without_backtrace(), "openreg: no");
  }
}

TEST(ExceptionTest, AFailedCommandIsAnAcceleratorErrorWithoutBacktrace) {
  try {
    translate_errors([] { throw CommandError("aten::gather", 0, 1, 3, index_error()); });
    FAIL();
  } catch (const c10::AcceleratorError& e) {
    EXPECT_STREQ(
        e.what_without_backtrace(),
        "openreg: aten::gather failed on openreg:1, stream 3: index 7 is out of bounds. "
        "Later work on that "
        "stream was skipped; set TORCH_OPENREG_STACKS=1 to report the line of the call, or "
        "TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call");
  }
}

TEST(ExceptionTest, InjectedErrorsAndDevicesThatFailHaveTheNumbersOfCuda) {
  const auto code_of = [](const Error& error) {
    try {
      translate_errors([&] {
        if (const auto* device = dynamic_cast<const DeviceError*>(&error)) throw *device;
        throw dynamic_cast<const InjectedError&>(error);
      });
    } catch (const c10::AcceleratorError& e) {
      return e.get_error_code();
    }
    return -1;
  };
  EXPECT_EQ(code_of(InjectedError("openreg: injected fault")), 1);
  EXPECT_EQ(code_of(DeviceError("openreg: failed", Health::kFailed)), 710);
  EXPECT_EQ(code_of(DeviceError("openreg:0: the device is lost", Health::kLost)), 46);
}

TEST(ExceptionTest, AnythingThrownHasASentence) {
  EXPECT_EQ(message_of(index_error()), "index 7 is out of bounds.");
  EXPECT_EQ(message_of(std::make_exception_ptr(std::out_of_range("x"))), "x");
  EXPECT_EQ(message_of(std::make_exception_ptr(7)), "an exception that is not a std::exception");
}

TEST(ExceptionTest, WhatIsNotOursStaysAsItIs) {
  EXPECT_THROW(translate_errors([] { throw std::out_of_range("x"); }), std::out_of_range);
  EXPECT_THROW(translate_errors([] { TORCH_CHECK_VALUE(false, "x"); }), c10::ValueError);
}

}  // namespace
}  // namespace openreg::backend
