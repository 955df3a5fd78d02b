#include "ops/tiers/raw_kernels.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "../test_device.h"
#include "ops/tiers/raw_kernels.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {
namespace {

const OpKernel any_kernel("openreg_test::sum_directly", nullptr);

/// The result of the raw kernel of sum over `dims`; nothing if it refuses.
std::optional<at::Tensor> sum_directly(const at::Tensor& input, at::OptionalIntArrayRef dims,
                                       const at::Tensor& out) {
  ArgumentWriter writer("aten::sum.dim_IntList", kDevice);
  writer.tensor(input);
  Argument<at::OptionalIntArrayRef>::write(writer, dims);
  Argument<bool>::write(writer, false);
  Argument<std::optional<at::ScalarType>>::write(writer, std::nullopt);
  writer.tensor(out, Access::kWrite);
  const auto command = writer.finish();
  const auto compute = raw_kernel("aten::sum.dim_IntList");
  EXPECT_EQ(compute, &sum_of_small_integers);
  static_cast<void>(out.cpu());  // waits until its zeros have been written
  if (!compute(any_kernel, CommandView(command))) return std::nullopt;
  return out.cpu();
}

at::Tensor results(std::vector<std::int64_t> sizes) {
  return at::zeros(sizes, at::dtype(at::kLong).device(kDevice));
}

TEST(DirectSum, IsComputedForContiguousTensors) {
  for (const auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort}) {
    const auto x = at::randint(0, 2, {3, 20, 30}, at::dtype(dtype));
    const auto on_device = x.to(kDevice);
    const auto rows = sum_directly(on_device, at::IntArrayRef{2}, results({3, 20}));
    const auto columns = sum_directly(on_device, at::IntArrayRef{0, -2}, results({30}));
    const auto all = sum_directly(on_device, std::nullopt, results({}));
    ASSERT_TRUE(rows && columns && all) << dtype;
    EXPECT_TRUE(at::equal(*rows, x.sum(2)));
    EXPECT_TRUE(at::equal(*columns, x.sum({0, 1})));
    EXPECT_TRUE(at::equal(*all, x.sum()));
  }
}

TEST(DirectSum, LeavesOtherCallsToATen) {
  const auto x = at::randint(0, 2, {3, 20, 30}, at::dtype(at::kChar)).to(kDevice);
  EXPECT_FALSE(sum_directly(x, at::IntArrayRef{0, 2}, results({20}))) << "not adjacent";
  EXPECT_FALSE(sum_directly(x.transpose(0, 2), at::IntArrayRef{0}, results({20, 3})));
  EXPECT_FALSE(sum_directly(x, at::IntArrayRef{2}, results({20, 3}).t())) << "strides of out";
  EXPECT_FALSE(sum_directly(x, at::IntArrayRef{2}, results({3, 19}))) << "sizes of out";
  EXPECT_FALSE(sum_directly(x, at::IntArrayRef{3}, results({3, 20}))) << "no such dimension";
  const auto wide = x.to(at::kInt);
  EXPECT_FALSE(sum_directly(wide, at::IntArrayRef{2}, results({3, 20})));
  const auto numbers = at::zeros({3, 20}, at::dtype(at::kInt).device(kDevice));
  EXPECT_FALSE(sum_directly(x, at::IntArrayRef{2}, numbers));
}

}  // namespace
}  // namespace openreg::ops
