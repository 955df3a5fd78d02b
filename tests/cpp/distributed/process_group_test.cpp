#include "distributed/process_group.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"
#include "fake_gloo.h"
#include "runtime/stream.h"

namespace openreg::distributed {
namespace {

using namespace testing;

TEST(ProcessGroup, CollectivesOfAGroupReachGlooOneAfterTheOther) {
  const Group group;
  auto x = ones();
  auto y = at::full({4}, 3., at::TensorOptions(kDevice));
  const auto first = group.all_reduce(x);
  const auto second = group.all_reduce(y);
  auto call = group.gloo->take();
  EXPECT_EQ(call.tensor[0].item<float>(), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(group.gloo->called());
  call.end();
  group.gloo->take().end();
  second->wait(kNoTimeout);
  EXPECT_EQ(y.cpu()[0].item<float>(), 6);
}

TEST(ProcessGroup, AFailureNamesCollectiveGroupAndRankAndEndsTheGroup) {
  const Group group;
  const auto x = ones();
  const auto work = group.all_reduce(x);
  work->wait(kNoTimeout);
  group.gloo->take().fail();
  const auto message = error_of([&] { x.cpu(); });
  EXPECT_PRED2(contains, message, "occl::all_reduce failed on openreg:0");
  EXPECT_PRED2(contains, message,
               "(number 1 of process group \"some\", rank 0 of 2) failed: peer is gone");
  EXPECT_FALSE(work->isSuccess());
  const auto later = group.all_reduce(x);
  later->wait(kNoTimeout);
  EXPECT_EQ(error_of([&] { x.cpu(); }), message);
  EXPECT_FALSE(group.gloo->called());
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
}

/// Fails a collective of each group when all are under way.
void fail_all(std::initializer_list<const Group*> groups) {
  std::vector<FakeGloo::Call> calls;
  for (const auto* group : groups) calls.push_back(group->gloo->take());
  for (auto& call : calls) call.fail();
}

TEST(ProcessGroup, AFailureSaysWhereOtherRanksAre) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const Group first(store, 0, 4);
  const Group second(store, 1, 4);
  const Group third(store, 2, 4);
  const auto x = ones();
  first.all_reduce(x);
  first.gloo->take().end();
  const auto ahead = first.all_reduce(x);
  const auto behind = second.all_reduce(x);
  const auto also_behind = third.all_reduce(x);
  fail_all({&first, &second, &third});
  EXPECT_PRED2(contains, failure(ahead),
               "peer is gone. Other ranks: ranks 1-2: in occl::all_reduce (number "
               "1); rank 3: no report");
  EXPECT_PRED2(contains, failure(behind),
               "Other ranks: rank 0: in occl::all_reduce (number 2); rank 2: in "
               "occl::all_reduce (number 1); rank 3: no report");
  EXPECT_NE(failure(also_behind), "nothing");
  raise_all();
}

TEST(ProcessGroup, AFailureInAPartOfTheRanksNamesThoseOfTheWhole) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const std::vector<std::uint64_t> global_ranks{1, 4, 5};
  const Group first(store, 0, 3, "part", global_ranks);
  const Group second(store, 1, 3, "part", global_ranks);
  const Group third(store, 2, 3, "part", global_ranks);
  const auto x = ones();
  const auto work = first.all_reduce(x);
  second.all_reduce(x);
  third.all_reduce(x);
  fail_all({&first, &second, &third});
  EXPECT_PRED2(contains, failure(work),
               "Other ranks: global ranks 4-5: in occl::all_reduce (number 1)");
  raise_all();
}

class EmptyStore : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;
  void set(const std::string&, const Bytes&) override {}
  Bytes get(const std::string&) override { return {}; }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>&) override { return false; }
  std::int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}
};

/// A store on a machine that cannot be reached.
class DeadStore final : public EmptyStore {
 public:
  c10::intrusive_ptr<Store> clone() override {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return nullptr;
  }
};

TEST(ProcessGroup, AStoreThatDoesNotAnswerKeepsNoFailureFromBeingRaised) {
  const Group group(c10::make_intrusive<DeadStore>());
  const auto work = group.all_reduce(ones());
  group.gloo->take().fail();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_PRED2(contains, failure(work), "no reports: the store does not respond");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  raise_all();
}

/// A store whose machine has shut down.
class LostStore final : public EmptyStore {
 public:
  c10::intrusive_ptr<Store> clone() override { throw std::runtime_error("connection refused"); }
};

TEST(ProcessGroup, AStoreThatIsGoneKeepsNoFailureFromBeingRaised) {
  const Group group(c10::make_intrusive<LostStore>());
  const auto work = group.all_reduce(ones());
  group.gloo->take().fail();
  EXPECT_PRED2(contains, failure(work),
               "peer is gone. Other ranks: no reports: the connection to the store failed");
  raise_all();
}

TEST(ProcessGroup, ACollectiveThatGlooDoesNotBeginFails) {
  const Group group;
  group.gloo->accepts = 0;
  const auto work = group.all_reduce(ones());
  EXPECT_PRED2(contains, failure(work), "failed: cannot connect");
  raise_all();
}

TEST(ProcessGroup, ATimeoutIsThatOfTheOptionsAndOfGloo) {
  const Group group;
  group.group->setTimeout(std::chrono::seconds(7));
  EXPECT_EQ(group.group->getBackendOptions()->timeout, std::chrono::seconds(7));
  const auto work = group.all_reduce(ones());
  group.gloo->take().end();
  work->wait(kNoTimeout);
  group.group->setTimeout(std::chrono::seconds(9));
  EXPECT_EQ(group.gloo->timeout, std::chrono::seconds(9));
  synchronize_device(0);
}

TEST(ProcessGroup, ABarrierWaitsForTheDeviceThatItNames) {
  const Group other;
  other.all_reduce(ones())->wait(kNoTimeout);
  const Group group;
  c10d::BarrierOptions options;
  options.device = c10::Device(backend::kDeviceType, 1);
  const auto work = group.group->barrier(options);
  EXPECT_TRUE(work->wait(kNoTimeout));
  EXPECT_FALSE(backend::current_stream(0).idle());
  other.gloo->take().end();
  synchronize_device(0);
}

TEST(ProcessGroup, ABarrierOnADeviceThatDoesNotExistIsRefusedAndLeavesTheGroupUsable) {
  const Group group;
  c10d::BarrierOptions options;
  options.device = c10::Device(backend::kDeviceType, 99);
  const auto message = error_of([&] { group.group->barrier(options); });
  EXPECT_PRED2(contains, message, "The device index is out of range (got 99, expected 0 to ");
  EXPECT_EQ(group.group->getSequenceNumberForGroup(), 0);
  const auto work = group.all_reduce(ones());
  group.gloo->take().end();
  EXPECT_TRUE(work->wait(std::chrono::seconds(60)));
  group.group->shutdown();
}

TEST(ProcessGroup, AStreamThatCannotBeMadeLeavesTheGroupUsable) {
  const Group group;
  group.group->setBoundDeviceId(c10::Device(backend::kDeviceType, 99));
  EXPECT_NE(error_of([&] { group.group->barrier({}); }), "nothing");
  const auto work = group.all_reduce(ones());
  group.gloo->take().end();
  EXPECT_TRUE(work->wait(std::chrono::seconds(60)));
  group.group->shutdown();
}

TEST(ProcessGroup, WhatGlooThrowsFailsTheStreamOfThePeer) {
  const Group group;
  std::vector<at::Tensor> tensors{ones()};
  group.group->send(tensors, 1, 0)->wait(kNoTimeout);
  EXPECT_PRED2(contains, error_of([&] { tensors[0].cpu(); }), "cannot send");
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
}

TEST(ProcessGroup, AbortEndsWhatIsUnderWayAndItsMemoryStaysUntilGlooIsThrough) {
  const Group group;
  auto call = [&] {
    auto x = ones();
    group.all_reduce(x)->wait(kNoTimeout);
    auto begun = group.gloo->take();
    group.group->abort();
    EXPECT_PRED2(contains, error_of([&] { x.cpu(); }), "the group was aborted");
    return begun;
  }();
  const auto other = at::full({4}, 7., at::TensorOptions(kDevice));
  call.end();  // late: Gloo writes
  EXPECT_EQ(other.cpu()[0].item<float>(), 7);
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
}

TEST(ProcessGroup, AbortAlsoEndsTheCollectiveThatIsStillConnecting) {
  std::promise<void> connecting;
  std::promise<void> connected;
  const auto gloo = c10::make_intrusive<FakeGloo>();
  const auto group = c10::make_intrusive<ProcessGroupOccl>(
      [&](auto&&...) {
        connecting.set_value();
        connected.get_future().wait();
        return gloo;
      },
      c10::make_intrusive<c10d::HashStore>(), 0, 2, Group::options({}));
  std::vector<at::Tensor> tensors{ones()};
  auto launched = std::async(std::launch::async, [&] { return group->allreduce(tensors, {}); });
  connecting.get_future().wait();
  auto aborted = std::async(std::launch::async, [&] { group->abort(); });
  EXPECT_EQ(aborted.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  connected.set_value();
  const auto work = launched.get();
  EXPECT_PRED2(contains, failure(work), "the group was aborted");
  EXPECT_FALSE(gloo->called());
  raise_all();
}

/// Runs a test in a process of its own, in which each operator waits for its command.
#define EXPECT_WHILE_LAUNCHES_BLOCK(...)                   \
  GTEST_FLAG_SET(death_test_style, "threadsafe");          \
  EXPECT_EXIT(                                             \
      {                                                    \
        ::setenv("TORCH_OPENREG_LAUNCH_BLOCKING", "1", 1); \
        __VA_ARGS__();                                     \
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0); \
      },                                                   \
      ::testing::ExitedWithCode(0), "")

/// A collective that another thread has begun, and whose call waits for it.
struct BlockedCall {
  explicit BlockedCall(const Group& group, const at::Tensor& tensor)
      : error(std::async(std::launch::async,
                         [&group, tensor] { return error_of([&] { group.all_reduce(tensor); }); })),
        call(group.gloo->take()) {}

  std::future<std::string> error;
  FakeGloo::Call call;
};

void expect_abort_to_end(const at::Tensor& tensor) {
  const Group group;
  BlockedCall blocked(group, tensor);
  auto aborted = std::async(std::launch::async, [&] { group.group->abort(); });
  EXPECT_EQ(aborted.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  blocked.call.end();
  const auto message = blocked.error.get();
  EXPECT_PRED2(contains, message, "the group was aborted");
}

TEST(ProcessGroup, AbortEndsACollectiveWhoseCallWaitsForIt) {
  EXPECT_WHILE_LAUNCHES_BLOCK([] { expect_abort_to_end(ones()); });
}

TEST(ProcessGroup, AbortEndsACollectiveWhoseCallWaitsToCopyTheResult) {
  EXPECT_WHILE_LAUNCHES_BLOCK([] {
    expect_abort_to_end(at::ones({4, 2}, at::TensorOptions(kDevice)).t());
  });
}

TEST(ProcessGroup, OtherThreadsUseTheGroupWhileACallWaits) {
  EXPECT_WHILE_LAUNCHES_BLOCK([] {
    const Group group;
    BlockedCall blocked(group, ones());
    auto number =
        std::async(std::launch::async, [&] { return group.group->getSequenceNumberForGroup(); });
    EXPECT_EQ(number.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    blocked.call.end();
    EXPECT_EQ(number.get(), 1);
    EXPECT_EQ(blocked.error.get(), "nothing");
  });
}

TEST(ProcessGroup, GlooGoesWithTheGroupUnlessWorkIsUnderWay) {
  const int before = FakeGloo::alive;
  {
    Group group;
    group.all_reduce(ones());
    group.gloo->take().end();
    group.group->shutdown();
  }
  EXPECT_EQ(FakeGloo::alive, before);
  FakeGloo::Call call;
  {
    Group group;
    group.all_reduce(ones());
    call = group.gloo->take();
  }
  EXPECT_EQ(FakeGloo::alive, before + 1);
  call.end();
}

TEST(ProcessGroup, AGroupThatGoesBeforeItsCollectiveHasBegunLeavesGlooToIt) {
  const Group before;
  auto x = ones();
  before.all_reduce(x)->wait(kNoTimeout);
  const auto gloo = [&] {
    const Group group;
    group.all_reduce(x)->wait(kNoTimeout);
    return group.gloo;
  }();
  EXPECT_FALSE(gloo->called());
  before.gloo->take().end();
  gloo->take().end();
  EXPECT_EQ(x.cpu()[0].item<float>(), 4);
}

TEST(ProcessGroup, ManyGroupsHaveCollectivesInFlightAtOnce) {
  std::vector<Group> groups(8);
  std::vector<at::Tensor> tensors;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    tensors.push_back(at::full({4}, double(i), at::TensorOptions(kDevice)));
  synchronize_device(0);  // The threads' streams do not wait for this one.
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      backend::exchange_current_stream(backend::stream_from_pool(0, Priority::kNormal));
      for (int k = 0; k < 20; ++k) groups[i].all_reduce(tensors[i])->wait(kNoTimeout);
      synchronize_device(0);
    });
  }
  for (int k = 0; k < 20; ++k) {
    std::vector<FakeGloo::Call> calls;
    for (auto& group : groups) calls.push_back(group.gloo->take());  // all 8 are under way
    for (auto& call : calls) call.end();
  }
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(tensors[i].cpu()[0].item<double>(), i * double(1 << 20));
}

}  // namespace
}  // namespace openreg::distributed
