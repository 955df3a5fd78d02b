// Sends and receives. A rank's messages to itself do not need Gloo.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "distributed/mailbox.h"
#include "distributed/process_group.h"
#include "fake_gloo.h"
#include "runtime/stream.h"
#include "runtime/stream_pool.h"

namespace openreg::distributed {
namespace {

using namespace testing;

at::Tensor filled(double value) { return at::full({4}, value, at::TensorOptions(kDevice)); }

c10::intrusive_ptr<c10d::Work> send(const Group& group, const at::Tensor& tensor, int tag) {
  std::vector<at::Tensor> tensors{tensor};
  return group.group->send(tensors, 0, tag);
}

c10::intrusive_ptr<c10d::Work> receive(const Group& group, const at::Tensor& tensor, int tag) {
  std::vector<at::Tensor> tensors{tensor};
  return group.group->recv(tensors, 0, tag);
}

double first_of(const at::Tensor& tensor) { return tensor.cpu()[0].item<double>(); }

TEST(Transfers, WithManyTagsUseFewStreams) {
  const Group group;
  const auto x = filled(-1);
  const auto before = StreamPool::of(0).streams().size();
  for (int tag = 0; tag < 1000; ++tag) {
    send(group, filled(tag), tag);
    receive(group, x, tag)->wait(kNoTimeout);
    ASSERT_EQ(first_of(x), tag);
  }
  EXPECT_LT(StreamPool::of(0).streams().size(), before + 50);
}

TEST(Transfers, AFailedOneKeepsItsErrorThoughItsStreamIsClosed) {
  const Group group;
  std::vector<at::Tensor> tensors{ones()};
  const auto failed = group.group->send(tensors, 1, 0);  // the Gloo of these tests cannot send
  EXPECT_PRED2(contains, failure(failed), "cannot send");
  for (int tag = 0; tag < 100; ++tag) {
    send(group, tensors[0], tag);
    const auto x = ones();
    receive(group, x, tag)->wait(kNoTimeout);
    ASSERT_EQ(first_of(x), 1);
  }
  EXPECT_PRED2(contains, failure(failed), "cannot send");
  EXPECT_NE(error_of([] { synchronize_device(0); }), "nothing");
}

TEST(Transfers, ThatWaitAreEndedByAbort) {
  const Group group;
  const auto waits = receive(group, ones(), 0);
  group.group->abort();
  EXPECT_PRED2(contains, failure(waits), "the group was aborted");
  raise_all();
}

TEST(Transfers, RefuseAPeerAndATagThatDoNotExist) {
  const Group group;
  std::vector<at::Tensor> tensors{ones()};
  EXPECT_PRED2(contains, error_of([&] { group.group->send(tensors, 2, 0); }), "got 2");
  EXPECT_PRED2(contains, error_of([&] { group.group->recv(tensors, -1, 0); }), "got -1");
  EXPECT_PRED2(contains, error_of([&] { group.group->recvAnysource(tensors, -5); }), "got -5");
}

TEST(Mailbox, SaysWhichMessageDidNotCome) {
  Mailbox mailbox;
  const auto bytes = at::full({4}, 0, at::kByte);
  mailbox.put(1, bytes);
  EXPECT_PRED2(contains, error_of([&] { mailbox.take(2, bytes, std::chrono::milliseconds(1)); }),
               "tag 2");
}

TEST(Mailbox, RefusesAMessageThatIsTooLarge) {
  Mailbox mailbox;
  mailbox.put(0, at::full({4}, 1, at::kByte));
  const auto bytes = at::full({3}, 0, at::kByte);
  EXPECT_PRED2(contains, error_of([&] { mailbox.take(0, bytes, std::chrono::milliseconds(1)); }),
               "4 bytes");
}

TEST(Mailbox, ASmallerMessageLeavesTheRest) {
  Mailbox mailbox;
  mailbox.put(0, at::full({2}, 1, at::kByte));
  const auto bytes = at::full({3}, 5, at::kByte);
  mailbox.take(0, bytes, std::chrono::milliseconds(1));
  EXPECT_EQ(bytes[1].item<int>(), 1);
  EXPECT_EQ(bytes[2].item<int>(), 5);
}

}  // namespace
}  // namespace openreg::distributed
