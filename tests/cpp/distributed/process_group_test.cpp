#include "distributed/process_group.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "backend/device.h"
#include "backend/stream.h"
#include "runtime/stream.h"

namespace openreg::distributed {
namespace {

const c10::Device kDevice(backend::kDeviceType, 0);

class FakeWork final : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future; }
  const c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
};

/// A Gloo whose collectives end when the test says so.
class FakeGloo final : public c10d::Backend {
 public:
  struct Call {
    at::Tensor tensor;
    c10::intrusive_ptr<FakeWork> work;
    void end() { tensor.mul_(2), work->future->markCompleted(); }
    void fail() {
      work->future->setError(std::make_exception_ptr(std::runtime_error("peer is gone")));
    }
  };

  FakeGloo() : Backend(0, 2) { ++alive; }
  ~FakeGloo() override { --alive; }
  const std::string getBackendName() const override { return "fake"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    auto work = c10::make_intrusive<FakeWork>();
    const std::lock_guard lock(mutex_);
    calls_.push_back({tensors[0], work});
    called_.notify_all();
    return work;
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>&, int, int) override {
    throw std::runtime_error("cannot send");
  }

  /// The oldest call that has not been taken; waits for it.
  Call take() {
    std::unique_lock lock(mutex_);
    called_.wait(lock, [&] { return !calls_.empty(); });
    auto call = calls_.front();
    calls_.pop_front();
    return call;
  }
  bool called() {
    const std::lock_guard lock(mutex_);
    return !calls_.empty();
  }

  static inline std::atomic<int> alive{0};

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  std::deque<Call> calls_;
};

struct Group {
  Group()
      : gloo(c10::make_intrusive<FakeGloo>()),
        group(c10::make_intrusive<ProcessGroupOccl>(
            [gloo = gloo](auto&&...) { return gloo; }, c10::make_intrusive<c10d::HashStore>(), 0, 2,
            c10::make_intrusive<ProcessGroupOccl::GroupOptions>("occl"))) {
    group->setGroupUid("some");
  }
  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor) const {
    std::vector<at::Tensor> tensors{tensor};
    return group->allreduce(tensors, {});
  }

  c10::intrusive_ptr<FakeGloo> gloo;
  c10::intrusive_ptr<ProcessGroupOccl> group;
};

at::Tensor ones() { return at::ones({4}, at::TensorOptions(kDevice)); }

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ProcessGroup, ACollectiveIsInTheOrderOfTheStreamThatWaitsForIt) {
  const Group group;
  auto x = ones().add_(1);
  const auto work = group.all_reduce(x);
  EXPECT_FALSE(work->isCompleted());
  work->wait(kNoTimeout);
  x.add_(1);
  EXPECT_FALSE(backend::current_stream(0).idle());
  group.gloo->take().end();
  EXPECT_EQ(x.cpu()[0].item<float>(), 5);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
}

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
  EXPECT_NE(message.find("occl::all_reduce failed on openreg:0"), std::string::npos) << message;
  EXPECT_NE(message.find("(number 1 of process group \"some\", rank 0 of 2) failed: peer is gone"),
            std::string::npos)
      << message;
  EXPECT_FALSE(work->isSuccess());
  const auto later = group.all_reduce(x);
  later->wait(kNoTimeout);
  EXPECT_EQ(error_of([&] { x.cpu(); }), message);
  EXPECT_FALSE(group.gloo->called());
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
}

TEST(ProcessGroup, WhatGlooThrowsFailsTheStreamOfThePeer) {
  const Group group;
  std::vector<at::Tensor> tensors{ones()};
  group.group->send(tensors, 1, 0)->wait(kNoTimeout);
  EXPECT_NE(error_of([&] { tensors[0].cpu(); }).find("cannot send"), std::string::npos);
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
}

TEST(ProcessGroup, AbortEndsWhatIsUnderWayAndItsMemoryStaysUntilGlooIsThrough) {
  const Group group;
  auto call = [&] {
    auto x = ones();
    group.all_reduce(x)->wait(kNoTimeout);
    auto begun = group.gloo->take();
    group.group->abort();
    EXPECT_NE(error_of([&] { x.cpu(); }).find("the group was aborted"), std::string::npos);
    return begun;
  }();
  const auto other = at::full({4}, 7., at::TensorOptions(kDevice));
  call.end();  // late: Gloo writes
  EXPECT_EQ(other.cpu()[0].item<float>(), 7);
  EXPECT_NE(error_of([&] { synchronize_device(0); }), "nothing");
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

TEST(ProcessGroup, ManyGroupsHaveCollectivesInFlightAtOnce) {
  std::vector<Group> groups(8);
  std::vector<at::Tensor> tensors;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    tensors.push_back(at::full({4}, double(i), at::TensorOptions(kDevice)));
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
