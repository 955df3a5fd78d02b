#pragma once

#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_set>
#include <vector>

#include "distributed/progress.h"
#include "runtime/stream_operation.h"

namespace openreg::distributed {

class GlooOperation;

/// A Gloo group, and the operations that are under way in it.
class GlooGroup {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<const Progress::Member> member)
      : gloo_(std::move(gloo)), progress_(std::move(member)) {}
  /// Destroys it, unless operations are queued or under way: Gloo would wait for them, however
  /// long.
  static void close(std::unique_ptr<GlooGroup> group);
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  c10d::Backend& gloo() const noexcept { return *gloo_; }
  /// Held for calls of collectives, which Gloo numbers as they come.
  std::mutex& calls() noexcept { return calls_; }
  Progress& progress() noexcept { return progress_; }

  /// Throws once the group has been aborted.
  void add(const std::shared_ptr<GlooOperation>& operation);
  void remove(const GlooOperation& operation);
  /// Ends all operations that are under way, and those that begin later, with `error`.
  void abort(const std::exception_ptr& error);

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
  Progress progress_;
  std::mutex calls_;
  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<GlooOperation>> under_way_;
  std::exception_ptr aborted_;
};

/// One call of Gloo, in the order of a stream.
class GlooOperation final : public StreamOperation,
                            public std::enable_shared_from_this<GlooOperation> {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  /// Calls Gloo on CPU tensors over the device's memory; returns what is to be waited for.
  using Call = std::function<Works(c10d::Backend& gloo)>;
  /// Keeps memory until Gloo has done with it, also if the operation has been given up before.
  using Memory = c10::SmallVector<c10::Storage, 4>;
  /// What waits for Gloo: nothing, since its works have futures; a thread of its own, for works
  /// without; or that for the call too, which may wait.
  enum class Waits { kNothing, kForWorks, kForCall };

  /// `member`: the group's. The group is not destroyed before the operation is through
  /// (GlooGroup::close()).
  GlooOperation(const Progress::Step& step, std::shared_ptr<const Progress::Member> member,
                GlooGroup& group, Call call, Memory memory, Waits waits);
  ~GlooOperation() override;

  void begin() override;
  void skip() noexcept override;

  /// Ends it for the stream, before Gloo has.
  void give_up(const std::exception_ptr& error);

  /// What it failed by; null if it has not.
  std::exception_ptr error() const;

 private:
  void watch(const Works& works);
  void wait(Works works);
  /// Gloo is through with it; `error`: has failed. Does not block.
  void finish(const std::exception_ptr& error);
  void finish();
  /// Unless it has failed before. `others`: what other ranks report.
  void fail(const std::exception_ptr& error, const std::string& others = "");

  const Progress::Step step_;
  const std::shared_ptr<const Progress::Member> member_;
  GlooGroup& group_;
  Call call_;
  Memory memory_;
  const Waits waits_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace openreg::distributed
