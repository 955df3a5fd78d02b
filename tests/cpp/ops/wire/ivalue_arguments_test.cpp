#include "ops/wire/ivalue_arguments.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <vector>

namespace openreg::ops {
namespace {

TEST(IValueArguments, AListIsWrittenIfItsElementsAre) {
  const auto schema = torch::jit::parseSchema(
      "f(Tensor none, Tensor(a) viewed, Tensor(b!) changed, Tensor(c)[] views, Tensor(d!)[] list) "
      "-> ()");
  std::vector<bool> written;
  for (const auto& argument : schema.arguments())
    written.push_back(is_written(argument.alias_info()));
  EXPECT_EQ(written, std::vector<bool>({false, false, true, false, true}));
}

}  // namespace
}  // namespace openreg::ops
