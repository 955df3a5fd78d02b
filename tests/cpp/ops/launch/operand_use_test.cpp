#include "ops/launch/operand_use.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace openreg::ops {
namespace {

/// All overloads of aten::NAME and aten::NAME_.
std::vector<c10::FunctionSchema> schemas_of(std::string_view name) {
  std::vector<c10::FunctionSchema> found;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name != "aten::" + std::string(name) && op.name != "aten::" + std::string(name) + "_")
      continue;
    if (const auto handle = c10::Dispatcher::singleton().findSchema(op))
      found.push_back(handle->schema());
  }
  return found;
}

bool has_argument(const c10::FunctionSchema& schema, std::string_view argument) {
  const auto end = argument.find_first_of("[ ");
  const auto rest = end == std::string_view::npos ? end : argument.find(' ', end);
  return schema.argumentIndexWithName(argument.substr(0, end)).has_value() &&
         (rest == std::string_view::npos || has_argument(schema, argument.substr(rest + 1)));
}

TEST(OperandUse, EachRowNamesArgumentsOfAnOperator) {
  for (const auto& row : all_operand_uses()) {
    EXPECT_TRUE(std::ranges::any_of(schemas_of(row.op),
                                    [&](const auto& schema) {
                                      return has_argument(schema, row.operand) &&
                                             (row.condition.empty() ||
                                              has_argument(schema, row.condition));
                                    }))
        << row.op << ", " << row.operand << ", " << row.condition;
    EXPECT_FALSE(row.reason.empty());
    EXPECT_EQ(row.condition.empty(), row.when == OperandUse::When::kAlways);
  }
}

TEST(OperandUse, AnOperatorIsFoundByItsNameInAnyForm) {
  for (const auto* name : {"aten::index_add", "aten::index_add_", "aten::index_add.out"})
    EXPECT_FALSE(operand_uses(name).empty()) << name;
  for (const auto* name : {"aten::index_ad", "mine::index_add", "aten::add.Tensor", ""})
    EXPECT_TRUE(operand_uses(name).empty()) << name;
}

TEST(OperandUse, AConditionDecides) {
  const auto use = [](const char* op, std::string_view operand, bool writes, bool zero) {
    return uses_of(operand_uses(op), operand, writes, [&](std::string_view) { return zero; });
  };
  EXPECT_FALSE(use("aten::addmm", "self", false, true).reads);
  EXPECT_TRUE(use("aten::addmm", "self", false, false).reads);
  EXPECT_TRUE(use("aten::addmm", "mat1", false, false).reads);
  EXPECT_FALSE(use("aten::native_batch_norm", "running_mean", true, true).writes);
  EXPECT_TRUE(use("aten::native_batch_norm", "running_mean", true, true).reads);
  EXPECT_TRUE(use("aten::native_batch_norm", "running_mean", true, false).writes);
  EXPECT_FALSE(use("aten::native_batch_norm_backward", "running_mean", false, false).reads);
  const auto evaluates = [](std::string_view name) { return name == "train"; };
  const auto wants_input_only = [](std::string_view name) { return name != "output_mask[0]"; };
  const auto gradient = operand_uses("aten::native_batch_norm_backward");
  EXPECT_TRUE(uses_of(gradient, "input", false, evaluates).reads);
  EXPECT_TRUE(uses_of(gradient, "running_mean", false, evaluates).reads);
  EXPECT_FALSE(uses_of(gradient, "input", false, wants_input_only).reads);
  EXPECT_TRUE(use("aten::index_add_", "self", true, false).some);
  EXPECT_FALSE(use("aten::index_add", "self", false, false).some);
}

}  // namespace
}  // namespace openreg::ops
