#include "ops/wire/stand_in.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "backend/device.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {
namespace {

const c10::Device kDevice(backend::kDeviceType, 0);

TEST(StandIn, OnesAreForIntegersOnly) {
  ArgumentWriter writer("aten::add", kDevice);
  const auto integers = empty_on(kDevice, {3}, at::kShort);
  const auto reals = empty_on(kDevice, {3}, at::kFloat);
  writer.tensor(integers);
  writer.tensor(reals);
  const StandIn ones(writer.finish(), /*shrunk=*/false, Elements::kOnes);
  ArgumentReader reader(ones.command());
  EXPECT_TRUE(at::equal(reader.tensor(), at::ones({3}, at::kShort)));
  EXPECT_TRUE(at::equal(reader.tensor(), at::zeros({3})));
}

TEST(StandIn, KeepsWhichSizesAreEqualAndWhichAreGreater) {
  const auto a = empty_on(kDevice, {100, 1, 7}, at::kFloat);
  const auto b = empty_on(kDevice, {7, 100, 0}, at::kFloat);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(a);
  writer.tensor(b);
  const StandIn shrunk(writer.finish(), /*shrunk=*/true, Elements::kZeros);
  ArgumentReader reader(shrunk.command());
  EXPECT_EQ(reader.tensor().sizes(), at::IntArrayRef({3, 1, 2}));
  EXPECT_EQ(reader.tensor().sizes(), at::IntArrayRef({2, 3, 0}));
}

TEST(StandIn, ViewsOfOneStorageStayIt) {
  const auto tensor = empty_on(kDevice, {4, 4}, at::kFloat);
  const auto second = tensor.select(0, 1);
  const auto third = tensor.select(0, 2);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(second, Access::kWrite);
  writer.tensor(third);
  const StandIn zeros(writer.finish(), /*shrunk=*/false, Elements::kZeros);
  ArgumentReader reader(zeros.command());
  const auto a = reader.tensor();
  const auto b = reader.tensor();
  EXPECT_TRUE(a.storage().is_alias_of(b.storage()));
  EXPECT_EQ(b.storage_offset() - a.storage_offset(), 4);
  EXPECT_EQ(a.storage().nbytes(), tensor.storage().nbytes());
  EXPECT_TRUE(at::equal(b, at::zeros({4})));
}

TEST(StandIn, ShrunkenOnesNeedLittleMemory) {
  const auto large = empty_on(kDevice, {1000, 1000}, at::kFloat);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(large);
  const StandIn shrunk(writer.finish(), /*shrunk=*/true, Elements::kZeros);
  EXPECT_LT(shrunk.bytes(), 16384);
}

}  // namespace
}  // namespace openreg::ops
