#include "ops/wire/tensor_pool.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace openreg::ops {
namespace {

class TensorPoolTest : public ::testing::Test {
 protected:
  at::Tensor make(c10::ScalarType dtype = at::kFloat) {
    return pool.make(memory.data(), sizeof memory, dtype);
  }

  TensorPool pool;
  std::array<float, 4> memory{1, 2, 3, 4};
};

TEST_F(TensorPoolTest, ATensorIsUsedAgainForOtherMemoryAndAnotherDtype) {
  auto tensor = make();
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef({2, 2}));
  EXPECT_EQ(tensor[1][0].item<float>(), 3);
  const void* const identity = tensor.unsafeGetTensorImpl();
  pool.take_back(std::move(tensor));

  std::array<std::int64_t, 2> others{7, 9};
  const auto again = pool.make(others.data(), sizeof others, at::kLong);
  EXPECT_EQ(again.unsafeGetTensorImpl(), identity);
  again.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef({2}));
  EXPECT_EQ(again.scalar_type(), at::kLong);
  EXPECT_EQ(again.nbytes(), sizeof others);
  EXPECT_EQ(again[1].item<std::int64_t>(), 9);
}

TEST_F(TensorPoolTest, ATensorThatSomethingRefersToIsNotUsedAgain) {
  auto tensor = make();
  const auto reference = tensor;
  pool.take_back(std::move(tensor));
  EXPECT_NE(make().unsafeGetTensorImpl(), reference.unsafeGetTensorImpl());

  auto viewed = make();
  viewed.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef({4}));
  const auto view = viewed.view({2, 2});
  pool.take_back(std::move(viewed));
  EXPECT_NE(make().storage().unsafeGetStorageImpl(), view.storage().unsafeGetStorageImpl());

  auto watched = make();
  const auto weak = watched.getIntrusivePtr().get();
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> watcher(
      watched.getIntrusivePtr());
  pool.take_back(std::move(watched));
  EXPECT_NE(make().unsafeGetTensorImpl(), weak);
}

// A destroyed tensor's address may come back, so the next tensor itself is looked at.
TEST_F(TensorPoolTest, WhatAKernelHasChangedIsNotSeenInTheNextTensor) {
  const auto next_after = [&](auto change) {
    auto tensor = make(at::kComplexFloat);
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef({2}));
    change(tensor);
    pool.take_back(std::move(tensor));
    auto next = make();
    next.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef({4}));
    return next;
  };
  const auto is_clean = [&](const at::Tensor& tensor) {
    return !tensor.is_conj() && !tensor.is_neg() && !tensor.storage().resizable() &&
           !tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
           tensor.const_data_ptr() == memory.data() && tensor.nbytes() == sizeof memory;
  };
  EXPECT_TRUE(is_clean(next_after([](at::Tensor&) {})));
  EXPECT_TRUE(
      is_clean(next_after([](at::Tensor& t) { t.unsafeGetTensorImpl()->_set_conj(true); })));
  EXPECT_TRUE(is_clean(next_after([](at::Tensor& t) { t.unsafeGetTensorImpl()->_set_neg(true); })));
  EXPECT_TRUE(is_clean(next_after([](at::Tensor& t) {
    t.unsafeGetTensorImpl()->set_sizes_contiguous(at::IntArrayRef());
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
  })));
  EXPECT_TRUE(is_clean(next_after([](at::Tensor& t) { t.set_(at::empty({3}, t.options())); })));
}

}  // namespace
}  // namespace openreg::ops
