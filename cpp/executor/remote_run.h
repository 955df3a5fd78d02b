#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "executor/executor.h"

namespace openreg {

class RunSlice;
struct StreamImpl;

/// The part of a run slice that runs commands in the device's executor.
class RemoteRun {
 public:
  enum class Result : std::uint8_t {
    kNothing,     ///< the next command runs in the program
    kHasRun,      ///< the next commands have run, or failed
    kHandedOver,  ///< a detached waiter has taken the stream over
  };

  RemoteRun(RunSlice& slice, Executor& executor) noexcept : slice_(slice), executor_(executor) {}

  /// Runs the next commands, if they belong in the executor.
  Result step();

 private:
  friend void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes);

  std::shared_ptr<const Executor::Batch> next_batch();
  std::optional<Executor::PendingBatch::End> run(
      const std::shared_ptr<const Executor::Batch>& batch);
  static bool wait(Executor::PendingBatch& sent, StreamImpl* hand_over_from);
  static bool hand_over(Executor::PendingBatch& sent, StreamImpl& stream);
  void retire(const Executor::Batch& batch, const Executor::PendingBatch::End& end);

  RunSlice& slice_;
  Executor& executor_;
};

/// Runs a command inside another one, on the calling thread: in the device's executor if it belongs
/// there, which it may end (executor.h).
void run_command(const Kernel& kernel, std::span<const std::byte> arguments, bool crashes = false);

}  // namespace openreg
