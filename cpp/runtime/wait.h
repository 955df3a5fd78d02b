#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/fence.h"
#include "runtime/stream_impl.h"

namespace openreg {

/// What a host waits for: a fence recorded on `stream`, or room in its queue.
class Goal {
 public:
  static Goal fence(FenceRef fence) noexcept { return {fence->source(), fence, 0}; }
  static Goal completed(StreamImpl& stream, std::uint64_t commands) noexcept {
    return {&stream, FenceRef(), commands};
  }

  bool reached() const noexcept {
    return fence_ ? fence_->done() : stream_->queue.completed() >= commands_;
  }
  StreamImpl& stream() const noexcept { return *stream_; }
  /// How many commands of the stream have completed when it is reached.
  std::uint64_t commands() const noexcept { return fence_ ? fence_->position() + 1 : commands_; }
  const FenceRef& fence() const noexcept { return fence_; }

 private:
  Goal(StreamImpl* stream, FenceRef fence, std::uint64_t commands) noexcept
      : stream_(stream), fence_(std::move(fence)), commands_(commands) {}

  StreamImpl* stream_;
  FenceRef fence_;
  std::uint64_t commands_;
};

/// Returns when the goal is reached; the calling thread helps to run commands, and holds no lock of
/// the runtime. Throws what Callbacks::check_interrupt throws, in the outermost wait of a host, and
/// Error for a wait that a command makes for its own stream. If the device is shut down before the
/// goal is reached, does not return.
void wait_for(const Goal& goal);
/// Waits for all goals, as wait_for() does for one. In an adversarial schedule their order has no
/// effect.
void wait_for_all(std::span<const Goal> goals);

using Deadline = std::chrono::steady_clock::time_point;
/// Like wait_for() for a fence, but sleeps while other threads run the commands, and does not
/// notice that a command waits for its own stream: the caller checks that. False: `deadline` was
/// reached first.
bool sleep_until(const FenceRef& fence, std::optional<Deadline> deadline = std::nullopt);

/// Waits for all that was enqueued on the stream before the call.
void wait_until_drained(StreamImpl& stream);

}  // namespace openreg
