#include "ops/launch/command_cache.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../test_device.h"
#include "address_space/address_space.h"
#include "backend/device.h"
#include "ops/launch/op_kernel.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {
namespace {

/// What the kernel was called with, and what it does beyond that.
struct Calls {
  std::vector<const c10::TensorImpl*> tensors;
  std::vector<float> elements;
  std::vector<std::int64_t> values;
  std::vector<std::int64_t> whole;  // the values by which it was made, for each run
  int made = 0;
  bool keeps_whole = false;
  bool lasts = true;
  std::function<void(at::Tensor&)> change;
} calls;

class Whole final : public CachedCommand {
 public:
  explicit Whole(std::span<const std::byte> command) {
    ArgumentReader reader(command);
    reader.tensor();
    value_ = reader.value<std::int64_t>();
    ++calls.made;
  }
  bool run(std::span<const std::byte>) override {
    calls.whole.push_back(value_);
    if (calls.change) throw std::runtime_error("the iterator");
    return calls.lasts;
  }

 private:
  std::int64_t value_;
};

const OpKernel kKernel("test::cached",
                       [](const OpKernel&, ArgumentReader& reader) {
                         auto& tensor = reader.tensor();
                         calls.tensors.push_back(tensor.unsafeGetTensorImpl());
                         calls.elements.push_back(tensor.numel() ? *tensor.data_ptr<float>() : 0);
                         calls.values.push_back(reader.value<std::int64_t>());
                         if (calls.change) calls.change(tensor);
                       },
                       {},
                       {.make_cached = [](const OpKernel&, std::span<const std::byte> command)
                            -> std::unique_ptr<CachedCommand> {
                         if (!calls.keeps_whole) return nullptr;
                         return std::make_unique<Whole>(command);
                       }});

/// A device tensor whose first element is this. Each has its own memory.
at::Tensor tensor_of(float element, at::IntArrayRef sizes = {2, 3}) {
  const auto tensor = empty_on(kDevice, sizes, at::kFloat);
  if (tensor.numel() > 0)
    *static_cast<float*>(AddressSpace::get().aperture(tensor.data_ptr())) = element;
  return tensor;
}

class CommandCacheTest : public ::testing::Test {
 protected:
  CommandCacheTest() {
    calls = {};
    run(tensor_of(0, {0}), 0);  // what another test has left is not alike
    calls.tensors.clear();
    calls.elements.clear();
    calls.values.clear();
  }

  static void run(const at::Tensor& tensor, std::int64_t value) {
    ArgumentWriter writer("test::cached", kDevice);
    writer.tensor(tensor, Access::kWrite);
    writer.encode(value);
    const auto command = writer.finish();
    kKernel.run(command);
  }
};

TEST_F(CommandCacheTest, TensorsServeCommandsThatAreAlikeWithTheirOwnMemoryAndValues) {
  const std::vector<at::Tensor> tensors{tensor_of(5), tensor_of(6), tensor_of(7), tensor_of(8)};
  for (std::int64_t i = 0; i < 4; ++i) run(tensors[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(calls.elements, (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(calls.values, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(calls.tensors[1], calls.tensors[2]);
  EXPECT_EQ(calls.tensors[2], calls.tensors[3]);
}

TEST_F(CommandCacheTest, OtherShapesAndStoragesAreNotAlike) {
  for (const float element : {1, 2, 3}) run(tensor_of(element), 0);
  const auto large = tensor_of(4, {3, 3});
  run(tensor_of(5, {3, 2}), 0);
  run(tensor_of(6), 0);
  run(large.narrow(0, 0, 2), 0);
  run(large.t().narrow(1, 0, 2), 0);
  run(large.narrow(0, 1, 2), 0);
  EXPECT_EQ(calls.elements[3], 5);
  EXPECT_EQ(calls.elements[4], 6);
  EXPECT_EQ(calls.elements[5], 4);
  EXPECT_EQ(calls.elements[6], 4);
}

TEST_F(CommandCacheTest, WhatIsMadeOfAllValuesServesEqualOnesOnly) {
  calls.keeps_whole = true;
  const auto tensor = tensor_of(1);
  for (const std::int64_t value : {7, 7, 7, 8, 7, 7}) run(tensor, value);
  EXPECT_EQ(calls.whole, (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_EQ(calls.made, 2);
  EXPECT_EQ(calls.values, (std::vector<std::int64_t>{7, 8, 7}));
}

TEST_F(CommandCacheTest, WhatDoesNotLastIsNotMadeAgain) {
  calls.keeps_whole = true;
  calls.lasts = false;
  const auto tensor = tensor_of(1);
  for (int i = 0; i < 5; ++i) run(tensor, 7);
  EXPECT_EQ(calls.whole.size(), 1U);
  EXPECT_EQ(calls.values.size(), 4U);
}

TEST_F(CommandCacheTest, WhatHasThrownIsNotUsedAgain) {
  calls.keeps_whole = true;
  const auto tensor = tensor_of(1);
  run(tensor, 7);
  calls.change = [](at::Tensor&) { throw std::runtime_error("the body"); };
  EXPECT_THROW(run(tensor, 7), std::runtime_error);  // by the whole
  EXPECT_THROW(run(tensor, 7), std::runtime_error);  // by the tensors
  calls.change = nullptr;
  run(tensor, 7);
  run(tensor, 8);
  EXPECT_EQ(calls.whole.size(), 1U);
  EXPECT_EQ(calls.values, (std::vector<std::int64_t>{7, 7, 7, 8}));
}

TEST_F(CommandCacheTest, ATensorThatTheKernelHasKeptOrChangedIsNotUsedAgain) {
  at::Tensor own;
  const auto tensor = tensor_of(1);
  const auto other = tensor_of(2);
  const std::vector<std::function<void(at::Tensor&)>> changes{
      [&](at::Tensor& output) { own = output; },
      [&](at::Tensor& output) { own = output.detach(); },
      [&](at::Tensor& output) {
        output.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef({2, 3}),
                                                            at::IntArrayRef({1, 2}));
      },
  };
  for (const auto& change : changes) {
    run(tensor, 0);
    run(tensor, 0);
    calls.change = change;
    run(tensor, 0);
    calls.change = [](at::Tensor& output) {
      EXPECT_EQ(output.strides(), at::IntArrayRef({3, 1}));
      EXPECT_EQ(*output.data_ptr<float>(), 2);
    };
    run(other, 0);
    if (own.defined()) {
      EXPECT_EQ(*own.data_ptr<float>(), 1);
    }
    calls.change = nullptr;
  }
}

TEST_F(CommandCacheTest, AKernelThatRunsCommandsOfItsOwnIsNotReplaced) {
  const auto tensor = tensor_of(1);
  const auto other = tensor_of(2, {5});
  run(tensor, 0);
  run(tensor, 0);
  calls.change = [&](at::Tensor& output) {
    calls.change = nullptr;
    for (int i = 0; i < 3; ++i) run(other, 0);
    EXPECT_EQ(output.sizes(), at::IntArrayRef({2, 3}));
  };
  run(tensor, 0);
  run(tensor_of(3), 0);
  EXPECT_EQ(calls.elements, (std::vector<float>{1, 1, 1, 2, 2, 2, 3}));
}

TEST_F(CommandCacheTest, EachThreadKeepsItsOwn) {
  const auto tensor = tensor_of(1);
  for (int i = 0; i < 3; ++i) run(tensor, 0);
  const auto kept = calls.tensors.back();
  std::thread([&] {
    for (int i = 0; i < 3; ++i) run(tensor, 0);
  }).join();
  EXPECT_NE(calls.tensors.back(), kept);
  run(tensor, 0);
  EXPECT_EQ(calls.tensors.back(), kept);
}

}  // namespace
}  // namespace openreg::ops
