#include "ops/tiers/small_lists.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "../test_device.h"

namespace openreg::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Whether the call is computed as one of small tensors.
bool compute(const char* overload, const Tensors& list, const std::vector<c10::IValue>& rest) {
  const std::string_view text(overload);
  const auto dot = text.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      std::string("aten::_foreach_").append(text.substr(0, dot)).c_str(),
      dot == std::string_view::npos ? "" : overload + dot + 1);
  const auto& op = *BoxedOperator::find(handle);
  std::vector<c10::IValue> arguments{list};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  ArgumentWriter writer(op.kernel().name(), kDevice);
  EXPECT_TRUE(op.write_arguments(writer, arguments));
  const auto command = writer.finish();
  for (const auto& tensor : list) static_cast<void>(tensor.cpu());  // waits until it is written
  return compute_small_lists(op, list_computation(op.kernel().name()), CommandView(command));
}

Tensors on_device(const Tensors& tensors) {
  Tensors moved;
  for (const auto& tensor : tensors) moved.push_back(tensor.to(kDevice));
  return moved;
}

/// More than the fewest that are batched.
Tensors some(at::ScalarType dtype = at::kFloat) {
  Tensors tensors;
  for (int i = 0; i < 5; ++i) {
    tensors.insert(tensors.end(), {at::rand({}, dtype), at::rand({3}, dtype),
                                   at::rand({2, 0}, dtype), at::rand({2, 17}, dtype)});
  }
  return tensors;
}

void expect_equal(const Tensors& got, const Tensors& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i].cpu(), expected[i]));
}

TEST(SmallLists, NumbersTensorsAndListsAreArguments) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    auto list = some(dtype);
    const auto others = some(dtype);
    const auto number = at::rand({}, dtype);
    const auto moved = on_device(list);
    EXPECT_TRUE(compute("add_.Scalar", moved, {1}));
    EXPECT_TRUE(compute("sqrt_", moved, {}));
    EXPECT_TRUE(compute("div_.Scalar", moved, {.3}));
    EXPECT_TRUE(compute("sub_.List", moved, {on_device(others), 2}));
    EXPECT_TRUE(compute("mul_.Tensor", moved, {number.to(kDevice)}));
    EXPECT_TRUE(compute("add_.Tensor", moved, {number, 1.})) << "of the CPU";
    EXPECT_TRUE(compute("addcmul_.Scalar", moved, {on_device(others), on_device(others), 3}));
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i].add_(1).sqrt_().div_(.3).sub_(others[i], 2).mul_(number).add_(number);
      list[i].addcmul_(others[i], others[i], 3);
    }
    expect_equal(moved, list);
  }
}

TEST(SmallLists, AreBatchedInParts) {
  Tensors list;
  for (int i = 0; i < 900; ++i) list.push_back(at::rand({i % 300}));
  list.push_back(at::rand({100'000}));
  const auto moved = on_device(list);
  EXPECT_TRUE(compute("neg_", moved, {}));
  for (auto& tensor : list) tensor.neg_();
  expect_equal(moved, list);
}

TEST(SmallLists, MayHaveNoElements) {
  Tensors list;
  for (int i = 0; i < 9; ++i) list.push_back(at::rand({0, 3}));
  const auto moved = on_device(list);
  EXPECT_TRUE(compute("neg_", moved, {}));
  EXPECT_TRUE(compute("add_.Scalar", moved, {1}));
}

TEST(SmallLists, MayLieInOneStorage) {
  const auto flat = at::rand({60});
  const auto moved = flat.to(kDevice);
  EXPECT_TRUE(compute("neg_", moved.split(3), {}));
  EXPECT_TRUE(compute("mul_.List", moved.split(3), {moved.split(3)})) << "by itself";
  EXPECT_TRUE(at::equal(moved.cpu(), flat.neg().pow(2)));
}

TEST(SmallLists, LeavesOtherCallsToPyTorch) {
  const auto* const add = "add_.List";
  const auto list = on_device(some());
  const auto copies = on_device(some());
  EXPECT_FALSE(compute(add, list, {copies, true})) << "a bool";
  EXPECT_FALSE(compute("add_.Scalar", list, {c10::complex<double>(1, 2)}));
  EXPECT_FALSE(compute("add_.Scalar", {}, {1}));
  EXPECT_TRUE(compute("add_.Scalar", {list[1], list[3]}, {1}));
  EXPECT_FALSE(compute("neg_", {list[1], list[3]}, {})) << "few";
  EXPECT_FALSE(compute(add, list, {Tensors{copies[0], copies[1], copies[2]}, 1}));
  auto others = copies;
  const auto with = [&others](const at::Tensor& last) {
    others.back() = last;
    return others;
  };
  EXPECT_TRUE(compute(add, list, {with(at::rand({2, 17}).to(kDevice)), 1}));
  EXPECT_FALSE(compute(add, list, {with(copies[0]), 1})) << "broadcast";
  EXPECT_FALSE(compute(add, list, {with(copies[3].to(at::kDouble)), 1}));
  EXPECT_FALSE(compute(add, list, {with(at::rand({17, 2}).to(kDevice).t()), 1}));
  EXPECT_FALSE(compute("neg_", with(copies[3].to(at::kDouble)), {}));
  EXPECT_FALSE(compute("neg_", with(at::rand({17, 2}).to(kDevice).t()), {}));
  EXPECT_FALSE(compute("neg_", with(at::rand({200, 200}).to(kDevice)), {})) << "large";
  EXPECT_FALSE(compute("neg_", on_device(some(at::kHalf)), {}));
  EXPECT_FALSE(compute("mul_.Tensor", list, {at::rand({}, at::kDouble)}));
}

TEST(SmallLists, NothingIsReadThatAnotherTensorOfTheCallIs) {
  const auto list = on_device(some());
  const auto& x = list[3];
  EXPECT_FALSE(compute("add_.Scalar", {x, list[1], x}, {1})) << "twice";
  EXPECT_FALSE(compute("add_.Scalar", {x[0].slice(0, 2, 9), x[0].slice(0, 0, 3), x[1]}, {1}));
  EXPECT_FALSE(compute("mul_.Tensor", list, {list[0]})) << "changes before it is read";
  const Tensors rows{x[0], x[1], list[1]};
  EXPECT_FALSE(compute("mul_.List", rows, {Tensors{x[1], x[0], list[1]}}));
  EXPECT_FALSE(compute("mul_.List", {x[0], list[1], x[1]}, {Tensors{x[0], list[1], x[0]}}));
}

TEST(SmallLists, AreOnlyThoseOfExactOperators) {
  for (const auto* const op : {"aten::_foreach_add.Scalar", "aten::_foreach_exp_",
                               "aten::_foreach_pow_.Scalar", "aten::add_.Scalar"})
    EXPECT_EQ(list_computation(op), ListComputation::kNone) << op;
}

}  // namespace
}  // namespace openreg::ops
