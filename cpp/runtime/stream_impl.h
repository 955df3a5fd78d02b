#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "base/intrusive_list.h"
#include "base/launch_site.h"
#include "base/mutex.h"
#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/command_queue.h"
#include "runtime/failure.h"
#include "runtime/host_expectation.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/stream.h"
#include "runtime/waiter.h"

namespace openreg {

class Fence;
class FenceRef;
class GraphRun;

/// Which thread runs a stream, or what it waits for. A stream has at most one owner: the run queue
/// (kQueued), one thread (kRunning) or one fence (kParked), or it is left to a host
/// (kReservedForHost). Written by the Scheduler, with its mutex held; the hints for producers and
/// runners are read without.
class Ownership {
 public:
  enum class State : std::uint8_t { kIdle, kQueued, kRunning, kParked, kReservedForHost };

  /// Whether no thread will look at the stream. Called by a producer after it has published a
  /// command; see Note [Who runs a stream].
  bool idle() const noexcept { return state_.load(std::memory_order_seq_cst) == State::kIdle; }
  /// Whether a host wants to run the stream: a hint for its runner.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed) > 0; }
  State state() const noexcept { return state_.load(std::memory_order_relaxed); }

 private:
  friend class Scheduler;

  bool is(State state) const noexcept { return state_.load(std::memory_order_relaxed) == state; }
  void set(State state) noexcept { state_.store(state, std::memory_order_relaxed); }

  std::atomic<State> state_{State::kIdle};
  std::atomic<int> wanted_{0};  // number of helpers
  // The kind of engine in whose run queue the stream is, or was last.
  EngineKind queued_for_ OPENREG_GUARDED_BY(scheduler_mutex) = EngineKind::kCompute;
  // Stays alive, because the wait at the queue's front owns a reference.
  Fence* parked_on_ OPENREG_GUARDED_BY(scheduler_mutex) = nullptr;
  // Hosts that want to run the stream.
  IntrusiveList<Waiter, &Waiter::as_helper> helpers_ OPENREG_GUARDED_BY(scheduler_mutex);
};

/// The implementation of a Stream: its commands, its owner and its failure.
struct StreamImpl final : Stream {
  StreamImpl(int device, std::int64_t id, Priority priority,
             std::uint64_t queue_limit = kQueueLimit)  // throws std::bad_alloc
      : queue(queue_limit), level(priority), device_index(device), number(id) {}

  static StreamImpl& of(Stream& stream) noexcept { return static_cast<StreamImpl&>(stream); }
  static const StreamImpl& of(const Stream& stream) noexcept {
    return static_cast<const StreamImpl&>(stream);
  }

  /// Enqueues a command. A command with a fence completes it; its failure goes to the fence and
  /// does not poison the stream, unless the fence was abandoned. This and the other ways to enqueue
  /// throw std::bad_alloc and, with Backpressure::kWait, Error for a destroyed stream and what
  /// wait_for() throws while there is no room; then nothing was enqueued.
  void enqueue_run(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost,
                   LaunchSite site, const FenceRef& fence,
                   Backpressure backpressure = Backpressure::kWait);
  void enqueue_record(const FenceRef& fence);
  /// Enqueues a record that ignores the backpressure, and that no trace shows.
  void enqueue_internal_record(const FenceRef& fence);
  void enqueue_wait(const FenceRef& fence, Backpressure backpressure);
  /// Enqueues a part of a graph's run; ignores the backpressure.
  void enqueue_graph(std::unique_ptr<GraphRun> run, Cost cost);

  /// Returns when there is room. Throws as an enqueue that waits for room does.
  void make_room_if_full() OPENREG_EXCLUDES(queue.mutex);

  bool drained() const noexcept { return queue.drained(); }

  /// The kernel of the next command or node; null: it has none. Called as next_engine().
  const Kernel* next_kernel() noexcept;
  /// The kind of engine for the next command, if it matters. Called if something is published, by
  /// the owner or, under the scheduler's mutex, by the thread that is finding one.
  std::optional<EngineKind> next_engine() noexcept;

  /// Whether the next command may wait for something outside the device. Called as next_engine().
  bool next_may_block() noexcept;
  /// Called by the owner if something is published: whether the next command is more than a record,
  /// a wait, or the beginning or the end of a replay.
  bool next_computes() noexcept {
    const Record& record = queue.front();
    return record.kind == Record::kRun || (record.kind == Record::kGraph && record.computes);
  }

  /// Called by the owner if something is published: whether the next command takes long and is no
  /// graph.
  bool next_is_long() noexcept {
    const Record& record = queue.front();
    return record.kind == Record::kRun && record.cost.is_long();
  }
  /// Called by the owner if something is published: whether the next command is brief
  /// (brief_run.h).
  bool next_is_brief() noexcept { return is_brief(queue.front()); }

  /// Poisons the stream because a command of it threw `error`: the commands that have not begun are
  /// skipped. Called by the runner, or by a host that has abandoned the fence of such a command.
  void poison(const Kernel& kernel, LaunchSite site, std::exception_ptr error);

  CommandQueue queue;

  // The failure of the first command that failed.
  alignas(64) FailureSlot failure;
  std::int64_t wait_began = 0;  // the runner's: of the wait at the front, if it is traced

  alignas(64) Ownership ownership;
  HostExpectation host_expectation;
  std::atomic<CaptureId> captured_by{0};
  const Priority level;
  const int device_index;
  const std::int64_t number;
  ListLink<StreamImpl> link;  // in a run queue, or (under the fence's mutex) in its fence's list

 private:
  // Each enqueue calls both. In between, ownership of what the record refers to passes to the
  // queue: if publish() throws, the caller still has it; find_runner() may run the command, and
  // throw if that ends the thread. publish() returns the position.
  std::uint64_t publish(const Record& record, std::span<const std::byte> arguments,
                        Fence* completes, Backpressure backpressure) OPENREG_EXCLUDES(queue.mutex);
  void find_runner(const Record& record, std::uint64_t position, Backpressure backpressure);
  static bool is_brief(const Record& record) noexcept;
  bool has_room() OPENREG_REQUIRES(queue.mutex);
  void make_room() OPENREG_EXCLUDES(queue.mutex);
};

/// A run queue, or the streams that are parked on a fence.
using StreamList = IntrusiveList<StreamImpl, &StreamImpl::link>;

}  // namespace openreg
