#include "distributed/gloo_operation.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "backend/stream.h"
#include "fake_gloo.h"
#include "runtime/stream.h"

namespace openreg::distributed {
namespace {

using namespace testing;

// In a group of one a failure waits for no reports.
struct GroupOfOne : Group {
  GroupOfOne() : Group(c10::make_intrusive<c10d::HashStore>(), 0, 1) {}
};

TEST(GlooOperation, ACallThatGlooRefusesFailsTheOperationWhenTheEarlierOnesHaveEnded) {
  const GroupOfOne group;
  group.gloo->accepts = 1;
  std::vector<at::Tensor> tensors{ones(), ones()};
  const auto work = group.group->allreduce_coalesced(tensors, {});
  auto call = group.gloo->take();
  const auto message = error_of([&] { work->wait(std::chrono::milliseconds(100)); });
  EXPECT_PRED2(contains, message, "did not complete within 100 ms");
  call.end();
  EXPECT_PRED2(contains, failure(work), "failed: cannot connect");
  raise_all();
}

TEST(GlooOperation, ACallThatGlooRefusesLeavesTheMemoryOfTheEarlierOnesInUse) {
  const GroupOfOne group;
  group.gloo->accepts = 1;
  auto call = [&] {
    std::vector<at::Tensor> tensors{ones(), ones()};
    const auto work = group.group->allreduce_coalesced(tensors, {});
    auto begun = group.gloo->take();
    EXPECT_NE(error_of([&] { work->wait(std::chrono::milliseconds(100)); }), "nothing");
    return begun;
  }();
  const std::vector<at::Tensor> others{at::full({4}, 7., at::TensorOptions(kDevice)),
                                       at::full({4}, 7., at::TensorOptions(kDevice))};
  backend::current_stream(0).synchronize();
  call.end();  // Gloo writes
  for (const auto& other : others) EXPECT_EQ(other.cpu()[0].item<float>(), 7);
  raise_all();
}

}  // namespace
}  // namespace openreg::distributed
