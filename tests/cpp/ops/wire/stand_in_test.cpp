#include "ops/wire/stand_in.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "../test_device.h"
#include "address_space/address_space.h"
#include "backend/device.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"
#include "ops/wire/extent.h"
#include "ops/wire/guarded_memory.h"

namespace openreg::ops {
namespace {

TEST(StandIn, OnesAreForIntegersOnly) {
  ArgumentWriter writer("aten::add", kDevice);
  const auto integers = empty_on(kDevice, {3}, at::kShort);
  const auto reals = empty_on(kDevice, {3}, at::kFloat);
  writer.tensor(integers);
  writer.tensor(reals);
  const StandIn ones(writer.finish(), StandIn::Kind::kWhole, Elements::kOnes);
  ArgumentReader reader(ones.command());
  EXPECT_TRUE(at::equal(reader.tensor(), at::ones({3}, at::kShort)));
  EXPECT_TRUE(at::equal(reader.tensor(), at::zeros({3})));
}

TEST(StandIn, WhatHasNoElementsGetsNoOnesWhereverItsOffsetIs) {
  const auto base = empty_on(kDevice, {1 << 24}, at::kLong);
  const auto none = base.narrow(0, 1 << 24, 0);
  const auto some = base.view(at::kFloat).narrow(0, 1, 2);
  for (const auto kind : {StandIn::Kind::kWhole, StandIn::Kind::kReading}) {
    ArgumentWriter writer("aten::kthvalue", kDevice);
    writer.tensor(none, Access::kWrite);
    const StandIn alone(writer.finish(), kind, Elements::kOnes);
    writer.tensor(some);
    const StandIn beside(writer.finish(), kind, Elements::kOnes);
    ArgumentReader reader(beside.command());
    EXPECT_EQ(reader.tensor().storage_offset(), 1 << 24);
    EXPECT_TRUE(at::equal(reader.tensor(), at::zeros({2})));
  }
}

TEST(StandIn, OnesOfAStorageAreThoseOfItsWidestIntegers) {
  const auto base = empty_on(kDevice, {4}, at::kLong);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(base.view(at::kByte).narrow(0, 0, 9));
  writer.tensor(base);
  const StandIn ones(writer.finish(), StandIn::Kind::kWhole, Elements::kOnes);
  ArgumentReader reader(ones.command());
  EXPECT_EQ(reader.tensor().sum().item<int>(), 2);
  EXPECT_TRUE(at::equal(reader.tensor(), at::ones({4}, at::kLong)));
}

// What is beyond a storage, the address sanitizer sees.
TEST(StandIn, StoragesHoldAllViewsOfThem) {
  const auto base = empty_on(kDevice, {100}, at::kLong);
  const std::vector<at::Tensor> views{base,
                                      base.narrow(0, 90, 0),
                                      base.narrow(0, 3, 2),
                                      base.view({-1, 4}).narrow(0, 25, 0),
                                      base.as_strided({3, 4}, {0, 7}),
                                      base.as_strided({2, 2}, {1, 1}, 5),
                                      base.as_strided({}, {}, 99),
                                      base.as_strided({100}, {0}, 98),
                                      base.view(at::kInt).narrow(0, 150, 0),
                                      base.view(at::kFloat).narrow(0, 7, 2),
                                      base.view(at::kByte).narrow(0, 799, 1)};
  for (const auto& first : views) {
    for (const auto& second : views) {
      ArgumentWriter writer("aten::kthvalue", kDevice);
      writer.tensor(first, Access::kWrite);
      writer.tensor(second);
      const auto command = writer.finish();
      for (const auto kind :
           {StandIn::Kind::kWhole, StandIn::Kind::kShrunk, StandIn::Kind::kReading}) {
        const StandIn ones(command, kind, Elements::kOnes);
        ArgumentReader reader(ones.command());
        EXPECT_NO_THROW(expect_memory(reader.tensor()));
        EXPECT_NO_THROW(expect_memory(reader.tensor()));
        EXPECT_LE(ones.bytes(), base.nbytes());
      }
    }
  }
}

TEST(StandIn, IsAlignedAsTheDevicesMemoryIs) {
  if (kGuardsStandIns) GTEST_SKIP() << "its end is at a page";
  std::vector<StandIn> stand_ins;
  for (std::int64_t size = 1; size < 100; ++size) {
    ArgumentWriter writer("aten::add", kDevice);
    writer.tensor(empty_on(kDevice, {size}, at::kByte));
    stand_ins.emplace_back(writer.finish(), StandIn::Kind::kWhole, Elements::kZeros);
    ArgumentReader reader(stand_ins.back().command());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reader.tensor().const_data_ptr()) % 64, 0) << size;
  }
}

TEST(StandIn, KeepsWhichSizesAreEqualAndWhichAreGreater) {
  const auto a = empty_on(kDevice, {100, 1, 7}, at::kFloat);
  const auto b = empty_on(kDevice, {7, 100, 0}, at::kFloat);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(a);
  writer.tensor(b);
  const StandIn shrunk(writer.finish(), StandIn::Kind::kShrunk, Elements::kZeros);
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
  const StandIn zeros(writer.finish(), StandIn::Kind::kWhole, Elements::kZeros);
  ArgumentReader reader(zeros.command());
  const auto a = reader.tensor();
  const auto b = reader.tensor();
  EXPECT_TRUE(a.storage().is_alias_of(b.storage()));
  EXPECT_EQ(b.storage_offset() - a.storage_offset(), 4);
  EXPECT_TRUE(at::equal(b, at::zeros({4})));
}

TEST(StandIn, StoragesEndWhereTheMemoryMadeForThemEnds) {
  const auto tensor = empty_on(kDevice, {256, 256}, at::kFloat);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(tensor.select(0, 1), Access::kWrite);
  const auto command = writer.finish();
  for (const auto kind : {StandIn::Kind::kWhole, StandIn::Kind::kShrunk, StandIn::Kind::kReading}) {
    const StandIn zeros(command, kind, Elements::kZeros);
    ArgumentReader reader(zeros.command());
    auto& row = reader.tensor();
    EXPECT_EQ(row.storage().nbytes(), zeros.bytes());
    EXPECT_LT(row.storage().nbytes(), tensor.storage().nbytes());
    EXPECT_THROW(row.resize_({256, 256}), c10::Error);
  }
}

TEST(StandIn, WhatIsWrittenHasTheMemoryBehindItThatTheCallHas) {
  const auto result = empty_on(kDevice, {4, 4}, at::kFloat);
  result.resize_({});
  ArgumentWriter writer("aten::mse_loss", kDevice);
  writer.tensor(result, Access::kWrite);
  const StandIn shrunk(writer.finish(), StandIn::Kind::kShrunk, Elements::kZeros);
  ArgumentReader reader(shrunk.command());
  EXPECT_EQ(reader.tensor().storage().nbytes(), result.storage().nbytes());
}

TEST(StandIn, ShrunkenOnesNeedLittleMemory) {
  const auto large = empty_on(kDevice, {1000, 1000}, at::kFloat);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(large);
  const StandIn shrunk(writer.finish(), StandIn::Kind::kShrunk, Elements::kZeros);
  EXPECT_LT(shrunk.bytes(), 16384);
}

TEST(StandIn, ReadsWhatIsOnlyReadWhereItLies) {
  const auto read = empty_on(kDevice, {3}, at::kInt);
  const auto written = empty_on(kDevice, {5}, at::kInt);
  auto* const elements = static_cast<int*>(AddressSpace::get().aperture(read.mutable_data_ptr()));
  std::fill_n(elements, 3, 7);
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(read);
  writer.tensor(written, Access::kWrite);
  const StandIn reading(writer.finish(), StandIn::Kind::kReading, Elements::kOnes);
  ArgumentReader reader(reading.command());
  const auto a = reader.tensor();
  const auto b = reader.tensor();
  EXPECT_EQ(a.const_data_ptr(), elements);
  EXPECT_TRUE(at::equal(a, at::full({3}, 7, at::kInt)));
  EXPECT_TRUE(at::equal(b, at::ones({5}, at::kInt)));
  EXPECT_EQ(reading.bytes(), written.nbytes());
}

}  // namespace
}  // namespace openreg::ops
