#include "ops/tiers/direct_lists.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "../test_device.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Whether the operator computes the call directly, on `list`.
bool compute_directly(const char* op, const Tensors& list, const c10::IValue& other,
                      const std::optional<c10::IValue>& alpha = std::nullopt) {
  const c10::TypePtr tensors = c10::ListType::ofTensors();
  c10::TypePtr others = c10::NumberType::get();
  if (other.isTensor()) others = c10::TensorType::get();
  if (other.isTensorList()) others = tensors;
  ArgumentWriter writer("aten::_foreach_add_.Scalar", kDevice);
  EXPECT_TRUE(write_ivalue(writer, list, *tensors, Access::kWrite, Numbers::kScale));
  EXPECT_TRUE(write_ivalue(writer, other, *others, Access::kRead, Numbers::kScale));
  if (alpha) write_ivalue(writer, *alpha, *c10::NumberType::get(), Access::kRead, Numbers::kScale);
  const auto command = writer.finish();
  for (const auto& tensor : list) static_cast<void>(tensor.cpu());  // waits until it is written
  return direct_computation_of_lists(op)(CommandView(command));
}

Tensors on_device(const Tensors& tensors) {
  Tensors moved;
  for (const auto& tensor : tensors) moved.push_back(tensor.to(kDevice));
  return moved;
}

Tensors some(at::ScalarType dtype = at::kFloat) {
  return {at::rand({}, dtype), at::rand({3}, dtype), at::rand({2, 0}, dtype),
          at::rand({2, 17}, dtype)};
}

void expect_equal(const Tensors& got, const Tensors& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i].cpu(), expected[i]));
}

TEST(DirectLists, NumbersTensorsAndListsAreOperands) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    auto list = some(dtype);
    const auto others = some(dtype);
    const auto number = at::rand({}, dtype);
    const auto moved = on_device(list);
    EXPECT_TRUE(compute_directly("aten::_foreach_add_.Scalar", moved, 1));
    EXPECT_TRUE(compute_directly("aten::_foreach_div_.Scalar", moved, .3));
    EXPECT_TRUE(compute_directly("aten::_foreach_sub_.List", moved, on_device(others), 1));
    EXPECT_TRUE(compute_directly("aten::_foreach_mul_.Tensor", moved, number.to(kDevice)));
    EXPECT_TRUE(compute_directly("aten::_foreach_add_.Tensor", moved, number, 1.)) << "of the CPU";
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i].add_(1).div_(.3).sub_(others[i]).mul_(number).add_(number);
    expect_equal(moved, list);
  }
}

TEST(DirectLists, ATensorThatStandsInTheListTwiceIsComputedTwice) {
  const auto x = at::rand({5});
  const auto moved = x.to(kDevice);
  EXPECT_TRUE(compute_directly("aten::_foreach_mul_.List", {moved, moved}, Tensors{moved, moved}));
  EXPECT_TRUE(at::equal(moved.cpu(), x.pow(2).pow(2)));
}

TEST(DirectLists, LeavesOtherCallsToATen) {
  const auto* const add = "aten::_foreach_add_.List";
  const auto list = on_device(some());
  const auto copies = on_device(some());
  EXPECT_FALSE(compute_directly(add, list, copies, 2)) << "scaled";
  EXPECT_FALSE(compute_directly(add, list, copies, true)) << "a bool";
  EXPECT_FALSE(compute_directly(add, list, c10::complex<double>(1, 2))) << "complex";
  EXPECT_FALSE(compute_directly(add, {}, 1));
  EXPECT_FALSE(compute_directly(add, list, Tensors{copies[0]}, 1)) << "other lengths";
  EXPECT_FALSE(compute_directly(add, {list[1]}, Tensors{copies[0]}, 1)) << "broadcast";
  EXPECT_FALSE(compute_directly(add, {list[1]}, Tensors{copies[1].to(at::kDouble)}, 1));
  EXPECT_FALSE(compute_directly(add, {list[1], list[2].to(at::kDouble)}, 1));
  EXPECT_FALSE(compute_directly(add, {list[1].to(at::kInt)}, 1));
  EXPECT_FALSE(compute_directly(add, {list[3].t()}, 1)) << "not contiguous";
  EXPECT_FALSE(compute_directly(add, {list[3]}, Tensors{at::rand({17, 2}).to(kDevice).t()}, 1));
  EXPECT_FALSE(compute_directly(add, {list[1]}, list[1][0], 1)) << "changes while it is added";
  EXPECT_FALSE(compute_directly(add, {list[1]}, copies[1].slice(0, 0, 1), 1)) << "of a dimension";
  const auto row = list[3][0];
  EXPECT_FALSE(compute_directly(add, {row.slice(0, 0, 9)}, Tensors{row.slice(0, 1, 10)}, 1));
  EXPECT_TRUE(compute_directly(add, {row.slice(0, 0, 8)}, Tensors{row.slice(0, 8, 16)}, 1));
  EXPECT_FALSE(compute_directly(add, {at::rand({100, 100}).to(kDevice)}, 1)) << "large";
}

TEST(DirectLists, OnlyExactOperatorsAreComputed) {
  for (const auto* const op : {"aten::_foreach_add.Scalar", "aten::_foreach_add_.ScalarList",
                               "aten::_foreach_pow_.Scalar", "aten::add_.Scalar"})
    EXPECT_EQ(direct_computation_of_lists(op), nullptr) << op;
}

}  // namespace
}  // namespace openreg::ops
