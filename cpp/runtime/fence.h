#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "base/intrusive_list.h"
#include "base/mutex.h"
#include "runtime/failure.h"
#include "runtime/fence_pool.h"
#include "runtime/happens_before.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/stream_impl.h"
#include "runtime/waiter.h"

namespace openreg {

/// One record of an event, for which streams and hosts wait: a position in a stream, or something
/// outside the device. Parked streams and sleeping hosts wait in its lists. FenceRef counts the
/// references.
class Fence {
 public:
  using Clock = std::chrono::steady_clock;

  /// A record on `source`. `timed`: whether the time of completion is recorded.
  explicit Fence(StreamImpl* source, bool timed = false) noexcept
      : source_(source), timed_(timed) {}
  /// Something outside the device, with this static name.
  explicit Fence(const char* name) noexcept : source_(nullptr), timed_(false), name_(name) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  static void* operator new(std::size_t bytes) { return allocate_fence(bytes); }
  static void operator delete(void* memory) noexcept { free_fence(memory); }

  StreamImpl* source() const noexcept { return source_; }
  /// The name of what is outside the device; null for a record in a stream.
  const char* name() const noexcept { return name_; }

  /// Whether it has completed. The position in the stream decides; the flag only says that the
  /// lists are closed. So `event.query()` agrees with what `stream.synchronize()` saw.
  bool done() const noexcept {
    return fired_.load(std::memory_order_acquire) ||
           (source_ && source_->queue.completed() > position_.load(std::memory_order_acquire));
  }

  /// Called by the producer, before the record is published.
  void set_position(std::uint64_t position) noexcept {
    position_.store(position, std::memory_order_release);
  }
  /// The position of the record in the source's queue. Called after it has been published.
  std::uint64_t position() const noexcept { return position_.load(std::memory_order_acquire); }
  /// What happens before all that waits for the fence; null if it is not tracked. Set before the
  /// record is published.
  const VectorClock* clock() const noexcept { return clock_.get(); }
  void set_clock(std::unique_ptr<const VectorClock> clock) noexcept { clock_ = std::move(clock); }
  /// Called by the source's runner before it pops the command. Afterwards others may read the
  /// results.
  void complete(FailurePtr failure) noexcept;
  /// Called instead of the other overload for a command that has a fence of its own and threw
  /// `error`. False: the caller has abandoned the fence, which does not take the error.
  bool complete(std::exception_ptr error) noexcept OPENREG_EXCLUDES(scheduler_mutex);
  /// Called when the caller of a command with a fence of its own stops waiting for it. Returns what
  /// the command has thrown, if anything.
  std::exception_ptr abandon() noexcept OPENREG_EXCLUDES(scheduler_mutex);
  /// Wakes all waiters. Called by the source's runner after it has popped the command.
  void fire() noexcept OPENREG_EXCLUDES(scheduler_mutex);
  /// Completes a fence that has no source; later calls do nothing.
  void signal(std::exception_ptr error) noexcept OPENREG_EXCLUDES(scheduler_mutex);

  // Valid once the fence is done:
  bool failed() const noexcept { return failure_ || error_; }
  /// What the fence's own command threw, or what was signalled from outside.
  const std::exception_ptr& error() const noexcept { return error_; }
  /// The source's failure; null if it has none.
  const Failure* failure() const noexcept { return failure_.get(); }
  /// The failure that the fence passes to a stream that waits for it; null if there is none.
  /// `site`: the line that queued the wait.
  FailurePtr failure_for(const StreamImpl& stream, LaunchSite site = 0) const;
  Clock::time_point time() const noexcept { return time_; }

  /// Parks a running stream until the fence fires; the caller no longer owns the stream. False: the
  /// fence has fired, and the stream continues.
  bool park(StreamImpl& stream) noexcept OPENREG_EXCLUDES(scheduler_mutex);

  /// Registers a waiter. False: the fence has fired, and will not wake the waiter.
  bool add(Waiter& waiter) noexcept OPENREG_EXCLUDES(scheduler_mutex);
  /// Called at the end of every wait, whether the fence has fired or not: afterwards no other
  /// thread touches the waiter.
  void remove(Waiter& waiter) noexcept OPENREG_EXCLUDES(scheduler_mutex);

 private:
  friend class FenceRef;

  /// Closes the lists: wakes the hosts and returns the streams.
  StreamList close() noexcept OPENREG_REQUIRES(mutex_);

  // The position before publication. Not 0, which would be complete already.
  static constexpr auto kUnpublished = std::numeric_limits<std::uint64_t>::max();

  std::atomic<int> references_{0};
  StreamImpl* const source_;
  const bool timed_;
  const char* const name_ = nullptr;
  std::unique_ptr<const VectorClock> clock_;
  std::atomic<bool> fired_{false};
  std::atomic<std::uint64_t> position_{kUnpublished};
  FailurePtr failure_;        // of the source
  std::exception_ptr error_;  // of its own command, or from outside the device
  Clock::time_point time_{};

  Mutex mutex_ OPENREG_ACQUIRED_BEFORE(scheduler_mutex);
  bool abandoned_ OPENREG_GUARDED_BY(mutex_) = false;
  StreamList parked_ OPENREG_GUARDED_BY(mutex_);
  IntrusiveList<Waiter, &Waiter::at_fence> waiters_ OPENREG_GUARDED_BY(mutex_);
};

/// Shared ownership of a fence.
class FenceRef {
 public:
  FenceRef() = default;
  explicit FenceRef(Fence* fence) noexcept : fence_(fence) {
    if (fence_) fence_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  FenceRef(const FenceRef& other) noexcept : FenceRef(other.fence_) {}
  FenceRef(FenceRef&& other) noexcept : fence_(std::exchange(other.fence_, nullptr)) {}
  FenceRef& operator=(FenceRef other) noexcept {
    std::swap(fence_, other.fence_);
    return *this;
  }
  ~FenceRef() {
    if (fence_ && fence_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete fence_;
  }

  /// Moves the reference into a queue and back.
  Fence* detach() noexcept { return std::exchange(fence_, nullptr); }
  static FenceRef attach(Fence* fence) noexcept {
    FenceRef result;
    result.fence_ = fence;
    return result;
  }

  Fence* get() const noexcept { return fence_; }
  Fence* operator->() const noexcept { return fence_; }
  Fence& operator*() const noexcept { return *fence_; }
  explicit operator bool() const noexcept { return fence_ != nullptr; }

 private:
  Fence* fence_ = nullptr;
};

}  // namespace openreg
