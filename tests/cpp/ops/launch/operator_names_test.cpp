#include "ops/launch/operator_names.h"

#include <gtest/gtest.h>

#include <string>

namespace openreg::ops {
namespace {

TEST(OperatorNames, AListNamesOperatorsOfAtenWithTheirOverloads) {
  EXPECT_TRUE(names_operator("mm add.Tensor", "aten::add.Tensor"));
  EXPECT_FALSE(names_operator("mm add.Tensor", "aten::add.Scalar"));
  EXPECT_FALSE(names_operator("mm add", "aten::add.Tensor"));
  EXPECT_FALSE(names_operator("mm", "mine::mm"));
}

TEST(OperatorNames, APatternNamesAllThatBeginSo) {
  EXPECT_TRUE(names_operator("mm linalg_eig*", "aten::linalg_eigvals.out"));
  EXPECT_FALSE(names_operator("mm linalg_eig*", "aten::linalg_svd"));
}

TEST(OperatorNames, ASchemaIsFoundByTheName) {
  const auto* const schema = find_schema(operator_name("aten::add.Tensor"));
  ASSERT_NE(schema, nullptr);
  EXPECT_EQ(schema->overload_name(), "Tensor");
  EXPECT_EQ(find_schema(operator_name("aten::no_such_operator")), nullptr);
}

TEST(OperatorNames, WhatIsKnownOfAnOperatorIsFoundOnce) {
  ByOperator<int> lengths;
  int calls = 0;
  const auto length_of = [&](const char* op) {
    ++calls;
    return static_cast<int>(std::string(op).size());
  };
  static constexpr const char* kFirst = "aten::mm";
  static constexpr const char* kSecond = "aten::add.Tensor";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lengths.get(kFirst, length_of), 8);
    EXPECT_EQ(lengths.get(kSecond, length_of), 16);
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace openreg::ops
