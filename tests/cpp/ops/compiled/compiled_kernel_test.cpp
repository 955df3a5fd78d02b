#include "ops/compiled/compiled_kernel.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "../test_device.h"
#include "backend/device.h"
#include "ops/tensors/factories.h"

namespace openreg::ops {
namespace {

/// out[i] = in[i] * scale + bias, for this many elements.
void scale_and_shift(const std::int64_t* arguments) {
  const auto* const in = reinterpret_cast<const float*>(arguments[0]);
  auto* const out = reinterpret_cast<float*>(arguments[1]);
  float scale = 0;
  std::memcpy(&scale, &arguments[2], sizeof scale);
  const auto* const bias = reinterpret_cast<const float*>(arguments[3]);
  for (std::int64_t i = 0; i < arguments[4]; ++i) out[i] = in[i] * scale + *bias;
}

const CompiledKernel& scale_kernel() {
  return CompiledKernel::get("test::scale_and_shift", &scale_and_shift,
                             {Parameter::kReads, Parameter::kWrites, Parameter::kFloat,
                              Parameter::kReads, Parameter::kInteger});
}

TEST(CompiledKernel, ComputesWithTensorsNumbersAndValuesOfTheHost) {
  const auto in = at::ones({3}).to(kDevice);
  const auto out = empty_on(kDevice, {3}, at::kFloat);
  CompiledCall call(scale_kernel());
  call.add(in);
  call.add(out);
  call.add(2.5);
  call.add(at::full({}, 4.0F));
  call.add(std::int64_t{3});
  call.launch();
  EXPECT_TRUE(out.cpu().equal(at::full({3}, 6.5F)));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(CompiledKernel, ArgumentsOfAnotherKindAreRefused) {
  const auto tensor = empty_on(kDevice, {3}, at::kFloat);
  CompiledCall call(scale_kernel());
  EXPECT_EQ(error_of([&] { call.add(2.5); }),
            "openreg: argument 0 of test::scale_and_shift cannot be a float (got 2.5)");
  EXPECT_EQ(error_of([&] { call.add(std::int64_t{2}); }),
            "openreg: argument 0 of test::scale_and_shift cannot be an integer (got 2)");
  call.add(tensor);
  EXPECT_EQ(error_of([&] { call.launch(); }),
            "openreg: too few arguments for test::scale_and_shift (got 1, expected 5)");
  call.add(tensor);
  EXPECT_EQ(error_of([&] { call.add(tensor); }),
            "openreg: argument 2 of test::scale_and_shift must be a number (got a tensor)");
}

TEST(CompiledKernel, OneNameIsOneKernel) { EXPECT_EQ(&scale_kernel(), &scale_kernel()); }

}  // namespace
}  // namespace openreg::ops
