#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "distributed/gloo_operation.h"
#include "distributed/stash.h"
#include "runtime/event.h"

namespace openreg::distributed {

/// The result of a call of a collective. As with NCCL, wait() makes the current stream wait, not
/// the host; a failure belongs to the stream, and is raised when the host waits for that stream.
class WorkOccl final : public c10d::Work {
 public:
  /// An operation that the collective has queued on a stream of a device, and the point after it.
  struct Part {
    c10::Device device;
    std::shared_ptr<GlooOperation> operation{};
    std::shared_ptr<Event> end{};
    std::shared_ptr<Stash> stash{};
  };
  struct What {
    c10d::OpType type;
    Progress::Step step;
    std::shared_ptr<const Progress::Member> member;
    std::vector<c10::Device> devices;  // of the parts
    bool host_waits = false;
  };

  /// To be called with the collective's stream current on each device: the future's callbacks run
  /// after the work of these streams. `outputs` are the result.
  WorkOccl(int rank, What what, std::vector<Part> parts, std::vector<at::Tensor> outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_ ? source_->load() : -1; }
  /// `source` receives the rank from which the tensor came.
  void set_source(std::shared_ptr<std::atomic<int>> source) { source_ = std::move(source); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  /// With a timeout, the host waits for at most this time; then the call throws the collective's
  /// own error, if there is one.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  /// A future of the outputs; those of all_gather are stacked into one tensor, as with NCCL, if
  /// they have the same shape.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return what_.step.number; }

 private:
  void wait_on_host(std::chrono::milliseconds timeout) const;

  const What what_;
  const std::vector<Part> parts_;
  const std::vector<at::Tensor> outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::shared_ptr<std::atomic<int>> source_;
};

}  // namespace openreg::distributed
