#include "ops/launch/zero_arguments.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <vector>

#include "../test_device.h"
#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {
namespace {

constexpr std::size_t kArguments = 10;

std::vector<std::size_t> zero_ones(const ZeroArguments& zeros) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < kArguments; ++i) {
    if (zeros.has(i)) found.push_back(i);
  }
  return found;
}

TEST(ZeroArguments, AreFoundInACommandWithTags) {
  const auto schema = torch::jit::parseSchema(
      "f(Tensor a, Tensor b, float c, float d, bool e, int[] f, str g, bool[] h, Tensor[] i, int "
      "j) "
      "-> ()");
  const std::vector<c10::IValue> values{floats({2}),
                                        floats({0, 2}),
                                        0.0,
                                        1.5,
                                        false,
                                        std::vector<std::int64_t>{0, 1},
                                        "nine words",
                                        c10::List<bool>({true, false}),
                                        std::vector<at::Tensor>{floats({1}), floats({0})},
                                        0};
  ArgumentWriter writer("f", kDevice);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(write_ivalue(writer, values[i], *schema.arguments()[i].type(), Access::kRead,
                             ScalarRole::kInSignature));
  }
  const ZeroArguments zeros(schema, writer.finish(), ValueFormat::kTagged);
  EXPECT_EQ(zero_ones(zeros), (std::vector<std::size_t>{1, 2, 4, 8, 9}));
  EXPECT_FALSE(zeros.has_in_list(0));
  EXPECT_TRUE(zeros.has_in_list(1));
  EXPECT_EQ(zero_ones(ZeroArguments(values)), zero_ones(zeros));
}

TEST(ZeroArguments, AreFoundInACommandWithTypes) {
  const auto schema = torch::jit::parseSchema(
      "f(Tensor a, Tensor? b, Scalar c, Scalar d, Scalar? e, bool f, int g, Tensor h) -> ()");
  const auto tensor = floats({3});
  const auto nothing = floats({0});
  ArgumentWriter writer("f", kDevice);
  Argument<at::Tensor>::write(writer, tensor);
  Argument<std::optional<at::Tensor>>::write(writer, std::nullopt);
  Argument<at::Scalar>::write(writer, 0);
  Argument<at::Scalar>::write(writer, c10::complex<double>(0, 1));
  Argument<std::optional<at::Scalar>>::write(writer, 0.0);
  Argument<bool>::write(writer, false);
  Argument<std::int64_t>::write(writer, 7);
  Argument<at::Tensor>::write(writer, nothing);
  const ZeroArguments zeros(schema, writer.finish(), ValueFormat::kTyped);
  EXPECT_EQ(zero_ones(zeros), (std::vector<std::size_t>{2, 4, 5, 7}));
}

TEST(ZeroArguments, WhatFollowsAnUnknownTypeIsNotZero) {
  const auto schema = torch::jit::parseSchema("f(Tensor a, int? b, int c) -> ()");
  const auto nothing = floats({0});
  ArgumentWriter writer("f", kDevice);
  Argument<at::Tensor>::write(writer, nothing);
  Argument<std::optional<std::int64_t>>::write(writer, 0);
  Argument<std::int64_t>::write(writer, 0);
  const ZeroArguments zeros(schema, writer.finish(), ValueFormat::kTyped);
  EXPECT_EQ(zero_ones(zeros), (std::vector<std::size_t>{0}));
}

}  // namespace
}  // namespace openreg::ops
