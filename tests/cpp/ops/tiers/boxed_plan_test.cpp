#include "ops/tiers/boxed_plan.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "../test_device.h"
#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/launch_counters.h"
#include "backend/result_placement.h"
#include "ops/launch/plan_cache.h"
#include "ops/tensors/factories.h"
#include "ops/tiers/shape_rules.h"

namespace openreg::ops {
namespace {

const BoxedOperator& find_operator(const char* name, const char* overload = "") {
  const auto* const op =
      BoxedOperator::find(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  EXPECT_NE(op, nullptr);
  return *op;
}

CallPlan plan_of(const BoxedOperator& op, const torch::jit::Stack& arguments) {
  ArgumentWriter writer(op.kernel().name(), kDevice);
  EXPECT_TRUE(op.write_arguments(writer, arguments));
  return plan_boxed(op, writer, arguments);
}

torch::jit::Stack convolution(const at::Tensor& image, const at::Tensor& weight) {
  const std::vector<std::int64_t> ones{1, 1};
  const std::vector<std::int64_t> zeros{0, 0};
  return {image, weight, c10::IValue(), ones, ones, ones, false, zeros, std::int64_t{1}};
}

class BoxedPlanTest : public ::testing::Test {
 protected:
  BoxedPlanTest() { PlanCache::clear(); }
};

TEST_F(BoxedPlanTest, TheProbeReportsTheResultAndWhichAllocationItIs) {
  const auto plan = plan_of(find_operator("aten::frobenius_norm", "dim"),
                            {floats({4, 6}), std::vector<std::int64_t>{1}, false});
  EXPECT_TRUE(plan.asynchronous);
  ASSERT_EQ(plan.results.size(), 1);
  EXPECT_EQ(at::IntArrayRef(plan.results[0].sizes), at::IntArrayRef({4}));
}

TEST_F(BoxedPlanTest, ACallThatTheKernelRefusesIsForTheCallingThread) {
  EXPECT_FALSE(plan_of(find_operator("aten::histc"),
                       {floats({4}), std::int64_t{4}, c10::Scalar(2), c10::Scalar(1)})
                   .asynchronous);
}

TEST_F(BoxedPlanTest, NewImageSizesOfAConvolutionAreNotProbed) {
  const auto& op = find_operator("aten::convolution");
  const auto weight = floats({8, 3, 3, 3});
  plan_of(op, convolution(floats({4, 3, 20, 20}), weight));
  const auto probes = backend::counters::probes.value();
  const auto plan = plan_of(op, convolution(floats({16, 3, 31, 17}), weight));
  EXPECT_EQ(backend::counters::probes.value(), probes);
  EXPECT_EQ(at::IntArrayRef(plan.results[0].sizes), at::IntArrayRef({16, 8, 31, 17}));
  EXPECT_EQ(at::IntArrayRef(plan.results[0].strides),
            at::IntArrayRef({8 * 31 * 17, 31 * 17, 17, 1}));
  EXPECT_NE(plan.allocations[0], backend::AllocationLog::kNone);
}

TEST_F(BoxedPlanTest, TheOrderOfStridesIsTheKernels) {
  const auto image = empty_on(kDevice, {4, 3, 20, 20}, at::kFloat, at::MemoryFormat::ChannelsLast);
  const auto plan =
      plan_of(find_operator("aten::convolution"), convolution(image, floats({8, 3, 3, 3})));
  EXPECT_EQ(at::IntArrayRef(plan.results[0].strides), at::IntArrayRef({20 * 20 * 8, 1, 20 * 8, 8}));
}

TEST_F(BoxedPlanTest, AConvolutionThatDoesNotFitIsRefusedAtAnySize) {
  const auto& op = find_operator("aten::convolution");
  const auto weight = floats({8, 3, 3, 3});
  EXPECT_TRUE(plan_of(op, convolution(floats({4, 3, 20, 20}), weight)).asynchronous);
  EXPECT_FALSE(plan_of(op, convolution(floats({4, 4, 20, 20}), weight)).asynchronous);
  EXPECT_FALSE(plan_of(op, convolution(floats({4, 3, 0, 20}), floats({8, 3, 5, 5}))).asynchronous);
}

TEST_F(BoxedPlanTest, ASmallerCallKeepsWhatIsNotFree) {
  const auto& op = find_operator("aten::native_batch_norm");
  const auto channels = floats({5});
  const torch::jit::Stack arguments{
      floats({64, 5, 30, 30}), channels, channels, channels, channels, true, 0.1, 1e-5};
  const auto smaller = SmallerCall::of(op, arguments);
  ASSERT_TRUE(smaller);
  const auto& image = smaller->arguments()[0].toTensor();
  EXPECT_TRUE(image.is_cpu());
  EXPECT_EQ(image.size(1), 5);
  EXPECT_LT(image.numel(), 1000);
  EXPECT_EQ(smaller->arguments()[1].toTensor().size(0), 5);
}

TEST_F(BoxedPlanTest, ExpandedTensorsStayExpanded) {
  const auto& op = find_operator("aten::convolution");
  const auto smaller = SmallerCall::of(
      op, convolution(floats({1, 3, 20, 20}).expand({4, 3, 20, 20}), floats({8, 3, 3, 3})));
  ASSERT_TRUE(smaller);
  const auto& image = smaller->arguments()[0].toTensor();
  EXPECT_EQ(image.stride(0), 0);
  EXPECT_EQ(image.stride(3), 1);
}

TEST(ResultPlacement, ServesTheAllocationThatTheLogNamed) {
  std::int32_t number = 0;
  {
    const backend::AllocationLog log;
    at::empty({10});
    const auto second = at::empty({16});
    number = log.number_of(second.const_data_ptr());
    EXPECT_EQ(log.number_of(&number), backend::AllocationLog::kNone);
  }
  EXPECT_EQ(number, 1);
  alignas(64) std::array<float, 16> memory{};
  const backend::Placement places[] = {{number, memory.data(), sizeof(memory)}};
  {
    const backend::ResultPlacement placement(places);
    EXPECT_NE(at::empty({16}).const_data_ptr(), memory.data());  // the first
    EXPECT_EQ(at::empty({16}).const_data_ptr(), memory.data());
    EXPECT_NE(at::empty({16}).const_data_ptr(), memory.data());  // the third
  }
  const backend::ResultPlacement placement(places);
  at::empty({16});
  EXPECT_NE(at::empty({17}).const_data_ptr(), memory.data());  // of another size
}

TEST(ResultPlacement, ServesMemoryThatIsFreedByItsAddress) {
  const auto result = at::empty({16}, at::TensorOptions(kDevice));
  auto* const memory = AddressSpace::get().aperture(result.mutable_data_ptr());
  void* other = nullptr;
  {
    const backend::AllocationLog log;
    other = c10::GetCPUAllocator()->raw_allocate(result.nbytes());
    EXPECT_EQ(log.number_of(other), 0);
  }
  const backend::Placement places[] = {{0, memory, result.nbytes()}};
  const backend::ResultPlacement placement(places);
  auto* const raw = c10::GetCPUAllocator()->raw_allocate(result.nbytes());
  EXPECT_EQ(raw, memory);
  c10::GetCPUAllocator()->raw_deallocate(raw);
  c10::GetCPUAllocator()->raw_deallocate(other);
  EXPECT_EQ(result.zero_().cpu().sum().item<float>(), 0);
}

}  // namespace
}  // namespace openreg::ops
