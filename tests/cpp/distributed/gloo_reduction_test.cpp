#include "distributed/gloo_reduction.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/stream.h"
#include "fake_gloo.h"
#include "runtime/stream.h"

namespace openreg::distributed {
namespace {

using namespace testing;

at::Tensor one_number(double value) { return at::full({1}, value, at::TensorOptions(kDevice)); }

TEST(Reduction, AFactorThatTheCallerHasGivenUpKeepsItsMemoryUntilItIsUsed) {
  const Group group;
  group.all_reduce(ones());  // what the group does after it cannot begin yet
  std::vector<at::Tensor> tensors{ones()};
  {
    c10d::ReduceOp op;
    op.op_ = c10d::ReduceOp::PREMUL_SUM;
    op.supplement_ = c10::make_intrusive<c10d::PreMulSumSupplement>(one_number(3));
    group.group->allreduce(tensors, {.reduceOp = op});
  }
  const auto other = one_number(7);
  backend::current_stream(0).synchronize();
  group.gloo->take().end();
  auto call = group.gloo->take();
  EXPECT_EQ(call.tensor[0].item<float>(), 3);
  call.end();
  synchronize_device(0);
}

}  // namespace
}  // namespace openreg::distributed
