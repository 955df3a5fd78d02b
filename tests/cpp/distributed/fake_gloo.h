#pragma once

#include <ATen/ops/ones.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "../text.h"
#include "backend/device.h"
#include "distributed/process_group.h"
#include "runtime/stream.h"

namespace openreg::distributed::testing {

using openreg::testing::contains;

inline const c10::Device kDevice(backend::kDeviceType, 0);

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
    if (--accepts < 0) throw std::runtime_error("cannot connect");
    calls_.push_back({tensors[0], work});
    called_.notify_all();
    return work;
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>&, int, int) override {
    throw std::runtime_error("cannot send");
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    auto work = c10::make_intrusive<FakeWork>();
    work->future->markCompleted();
    return work;
  }
  void setTimeout(std::chrono::milliseconds value) override { timeout = value; }

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
  std::chrono::milliseconds timeout{0};
  int accepts = 1000;  ///< calls of allreduce() before it refuses them; set before the first one

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  std::deque<Call> calls_;
};

struct Group {
  explicit Group(
      const c10::intrusive_ptr<c10d::Store>& store = c10::make_intrusive<c10d::HashStore>(),
      int rank = 0, int size = 2, const std::string& name = "some",
      const std::vector<std::uint64_t>& global_ranks = {})
      : gloo(c10::make_intrusive<FakeGloo>()),
        group(c10::make_intrusive<ProcessGroupOccl>([gloo = gloo](auto&&...) { return gloo; },
                                                    store, rank, size, options(global_ranks))) {
    group->setGroupUid(name);
  }
  static c10::intrusive_ptr<ProcessGroupOccl::GroupOptions> options(
      const std::vector<std::uint64_t>& global_ranks) {
    auto made = c10::make_intrusive<ProcessGroupOccl::GroupOptions>("occl");
    made->global_ranks_in_group = global_ranks;
    return made;
  }
  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor) const {
    std::vector<at::Tensor> tensors{tensor};
    return group->allreduce(tensors, {});
  }

  c10::intrusive_ptr<FakeGloo> gloo;
  c10::intrusive_ptr<ProcessGroupOccl> group;
};

inline at::Tensor ones() { return at::ones({4}, at::TensorOptions(kDevice)); }

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

/// Raises all failures of the streams.
inline void raise_all() {
  while (error_of([] { synchronize_device(0); }) != "nothing") {
  }
}

/// The error of the work, which must have failed or be about to fail.
inline std::string failure(const c10::intrusive_ptr<c10d::Work>& work) {
  return error_of([&] { work->wait(std::chrono::seconds(60)); });
}

}  // namespace openreg::distributed::testing
