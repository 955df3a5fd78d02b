#include "ops/launch/half_precision.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "../test_device.h"
#include "ops/launch/launch.h"
#include "ops/launch/op_kernel.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {
namespace {

std::vector<at::ScalarType> missing(HalfInstructions instructions) {
  const auto dtypes = instructions.missing();
  return {dtypes.begin(), dtypes.end()};
}

TEST(HalfPrecision, WhatAProcessorLacksIsComputedInFloat32) {
  using Dtypes = std::vector<at::ScalarType>;
  EXPECT_EQ(missing({.float16 = true, .bfloat16 = true}), Dtypes());
  EXPECT_EQ(missing({.float16 = true, .bfloat16 = false}), Dtypes({at::kBFloat16}));
  EXPECT_EQ(missing({.float16 = false, .bfloat16 = true}), Dtypes({at::kHalf}));
  EXPECT_EQ(missing({.float16 = false, .bfloat16 = false}), Dtypes({at::kHalf, at::kBFloat16}));
}

// The body records what it is given.
std::vector<at::ScalarType> g_given;
bool g_fails = false;
const OpKernel widened{"openreg_test::widened_mm",
                       [](const OpKernel&, ArgumentReader& reader) {
                         const auto a = reader.tensor();
                         const auto b = reader.tensor();
                         auto& out = reader.tensor();
                         g_given = {a.scalar_type(), b.scalar_type(), out.scalar_type()};
                         if (g_fails) throw std::runtime_error("failed");
                         at::mm_out(out, a, b);
                       },
                       {},
                       {.widened = kHalfDtypes}};

// Both dtypes, whatever the processor of the test has.
class WidenedTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(WidenedTest, TheKernelGetsFloat32AndItsResultIsRoundedOnce) {
  const auto dtype = GetParam();
  const auto a = at::randn({9, 4}).to(dtype);
  const auto b = at::randn({4, 7}).to(dtype).t().contiguous().t();
  const auto on_device = [](const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(kDevice))
        .copy_(tensor);
  };
  const auto device_a = on_device(a);
  const auto device_b = on_device(b);
  const auto out = on_device(at::zeros({9, 7}, a.options()));
  ArgumentWriter writer(widened.name(), kDevice);
  writer.tensor(device_a);
  writer.tensor(device_b);
  writer.tensor(out, Access::kWrite);
  launch(widened, writer, ArgumentSupport::kAll);
  EXPECT_TRUE(at::equal(out.cpu(), at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(dtype)));
  EXPECT_EQ(g_given, std::vector<at::ScalarType>(3, at::kFloat));
}

TEST_P(WidenedTest, ARunAfterAFailedOneReadsTheTensorsAgain) {
  const auto options = at::TensorOptions(GetParam()).device(kDevice);
  const auto a = at::zeros({3, 3}, options);
  const auto b = at::zeros({3, 3}, options).fill_(1);
  const auto out = at::zeros({3, 3}, options);
  ArgumentWriter writer(widened.name(), kDevice);
  writer.tensor(a);
  writer.tensor(b);
  writer.tensor(out, Access::kWrite);
  const auto command = writer.finish();
  static_cast<void>(out.cpu());    // all of this has run
  const Kernel& kernel = widened;  // whose function is public
  const auto prepared = kernel.prepare(command);
  g_fails = true;
  EXPECT_THROW(prepared->run(), std::runtime_error);
  g_fails = false;
  a.fill_(2);
  static_cast<void>(a.cpu());
  prepared->run();
  EXPECT_TRUE(at::equal(out.cpu(), at::full({3, 3}, 6, GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WidenedTest, ::testing::ValuesIn(kHalfDtypes));

}  // namespace
}  // namespace openreg::ops
