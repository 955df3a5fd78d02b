#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_set>
#include <vector>

#include "distributed/progress.h"
#include "distributed/stash.h"
#include "runtime/stream_operation.h"

namespace openreg::distributed {

class GlooOperation;

/// A Gloo group, and the operations that are under way in it.
class GlooGroup {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<const Progress::Member> member)
      : gloo_(std::move(gloo)), progress_(std::move(member)) {}
  /// Destroys the group, unless operations are queued or under way: then the group is leaked,
  /// because Gloo would wait for them, however long that takes.
  static void close(std::unique_ptr<GlooGroup> group);
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  c10d::Backend& gloo() const noexcept { return *gloo_; }
  /// Held while collectives are called, because Gloo numbers them in the order of the calls.
  std::mutex& calls() noexcept { return calls_; }
  Progress& progress() noexcept { return progress_; }

  /// Throws the error of abort() once the group has been aborted.
  void add(const std::shared_ptr<GlooOperation>& operation);
  void remove(const GlooOperation& operation);
  /// Ends all operations that are under way, and those that begin later, with `error`.
  void abort(const std::exception_ptr& error);
  /// Ends the operations that begin later, with `error`; those under way go on.
  void refuse_later(const std::exception_ptr& error);

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
  /// Calls Gloo on CPU tensors over the device's memory, and adds the works to wait for. If it
  /// throws, the operation still waits for those that it has added.
  using Call = std::function<void(c10d::Backend& gloo, Works& works)>;
  /// What waits for Gloo. kNothing: no thread, because its works have futures. kForWorks: a
  /// separate thread, for works without futures. kForCall: a separate thread that also makes the
  /// call, because the call may wait.
  enum class Waits { kNothing, kForWorks, kForCall };

  /// `member` is that of the group. The group is not destroyed before the operation has ended
  /// (GlooGroup::close()). `memory` is what it uses. `deliver`, if given, is called when Gloo has
  /// succeeded, before the stream goes on, unless the operation has been given up.
  GlooOperation(const Progress::Step& step, std::shared_ptr<const Progress::Member> member,
                GlooGroup& group, Call call, std::shared_ptr<Stash> memory, Waits waits,
                std::function<void()> deliver = nullptr);
  ~GlooOperation() override;

  void begin() override;
  void skip() noexcept override;

  /// Ends the operation for the stream before Gloo has finished; does nothing afterwards. Called
  /// from any thread, with no lock of the runtime held.
  void give_up(const std::exception_ptr& error);

  /// The error of the operation; null if it has not failed.
  std::exception_ptr error() const;

 private:
  /// What Gloo has begun, and the error that kept it from beginning the rest; null if it has begun
  /// all.
  struct Begun {
    Works works;
    std::exception_ptr error;
  };
  Begun call() noexcept;
  void watch(const Begun& begun);
  void wait(Begun begun);
  /// Called when Gloo has finished with it. `error`: why it has failed, or null. Does not block.
  void finish(const std::exception_ptr& error);
  void finish();
  /// Notes the failure unless there is an earlier one or the operation has succeeded. `others`:
  /// what other ranks report.
  void fail(const std::exception_ptr& error, const std::string& others = "");

  const Progress::Step step_;
  const std::shared_ptr<const Progress::Member> member_;
  GlooGroup& group_;
  Call call_;
  std::function<void()> deliver_;
  const std::shared_ptr<Stash> memory_;
  const Waits waits_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  bool gloo_finished_ = false;  // Gloo has finished: the error is final
};

}  // namespace openreg::distributed
